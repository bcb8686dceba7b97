// The launchers behind launch_copy, one a file.
#pragma once

#include "copy/copy.h"

namespace memops {

void launch(const FlatCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const RowsCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const FieldsCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const TileCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const BoxCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const StridedCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const CastRows& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const CastTile& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);
void launch(const CastStrided& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream);

}  // namespace memops
