#include "common/cuda/launch.h"
#include "copy/copy.h"
#include "copy/kernels.h"

namespace memops {

void launch_copy(const CopyPlan& plan, const CopyParams& params, cudaStream_t stream) {
  std::visit([&](const auto& kernel) { launch(kernel, plan, params, stream); }, plan.kernel);
  check_launch(name(plan.kernel));
}

}  // namespace memops
