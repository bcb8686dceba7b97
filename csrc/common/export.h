#pragma once

/// Marks what one of our shared libraries offers to the others; all else stays hidden.
#define MEMOPS_API __attribute__((visibility("default")))
