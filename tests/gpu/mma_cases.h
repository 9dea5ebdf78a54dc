// The pairs of formats that the tensor core products take.
#pragma once

#include "gpu/linear_cases.h"

namespace hadal::reference {

#ifdef __SANITIZE_THREAD__  // the barriers are the same for all formats
inline const Format kMmaFormats[] = {{DType::kF8E4M3, DType::kI8, DType::kF8E8M0},
                                     {DType::kBF16, DType::kF8E4M3, DType::kF8E8M0}};
#else
inline const Format kMmaFormats[] = {
    {DType::kBF16, DType::kBF16, DType::kF32},        {DType::kF8E4M3, DType::kBF16, DType::kF32},
    {DType::kBF16, DType::kF8E4M3, DType::kF8E8M0},   {DType::kF8E4M3, DType::kF8E4M3, DType::kF32},
    {DType::kF8E4M3, DType::kF8E4M3, DType::kF8E8M0}, {DType::kBF16, DType::kI8, DType::kF8E8M0},
    {DType::kF8E4M3, DType::kI8, DType::kF8E8M0}};
#endif

}  // namespace hadal::reference
