// Wide instructions for one region of a file, in g++ and clang alike. Open the region after all
// includes and keep inline functions of other headers out of it: code that the linker may share
// with baseline files must not be compiled with instructions that the CPU may lack.
#pragma once

// g++ 12 takes the "undefined" operands of its own intrinsics for uninitialised variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#define HADAL_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define HADAL_TARGET_BEGIN(features) \
  HADAL_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define HADAL_TARGET_END HADAL_PRAGMA(clang attribute pop)
#else
#define HADAL_TARGET_BEGIN(features) \
  HADAL_PRAGMA(GCC push_options) HADAL_PRAGMA(GCC target(features))
#define HADAL_TARGET_END HADAL_PRAGMA(GCC pop_options)
#endif

#define HADAL_TARGET_AVX2 "avx2,fma,f16c"
#define HADAL_TARGET_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,f16c,fma"
