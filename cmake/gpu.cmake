# HADAL_CUDA and HADAL_HIP = AUTO | ON | OFF. AUTO takes what is there and says why where it is not.
# Where a compiler is found, the targets hadal_cuda_check and hadal_hip_check compile every portable
# kernel of src/kernels/gpu for its cards. They are not part of the default build.
set(HADAL_CUDA_ARCHS 90a CACHE STRING "CUDA architectures, e.g. 80;89;90a;100;120")
foreach(gpu CUDA HIP)
  set(HADAL_${gpu} AUTO CACHE STRING "Build the ${gpu} kernels: AUTO, ON or OFF")
  set_property(CACHE HADAL_${gpu} PROPERTY STRINGS AUTO ON OFF)
  if(NOT HADAL_${gpu} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "HADAL_${gpu} is '${HADAL_${gpu}}': set it to AUTO, ON or OFF")
  endif()
endforeach()

# Sets HADAL_<gpu>_COMPILER, or says why there is none; ON makes that an error.
function(hadal_find_gpu gpu compiler_names)
  if(HADAL_${gpu} STREQUAL OFF)
    message(STATUS "${gpu}: off (HADAL_${gpu}=OFF)")
    set(HADAL_${gpu}_USED FALSE PARENT_SCOPE)
    return()
  endif()
  find_program(HADAL_${gpu}_COMPILER NAMES ${compiler_names} PATHS /opt/rocm/llvm/bin)
  mark_as_advanced(HADAL_${gpu}_COMPILER)
  if(HADAL_${gpu}_COMPILER)
    set(HADAL_${gpu}_USED TRUE PARENT_SCOPE)
    return()
  endif()
  set(HADAL_${gpu}_USED FALSE PARENT_SCOPE)
  list(JOIN compiler_names " or " wanted)
  set(why "no compiler found (looked for ${wanted})")
  if(HADAL_${gpu} STREQUAL ON)
    message(FATAL_ERROR "HADAL_${gpu}=ON cannot be met: ${why}. Set it to AUTO or OFF.")
  endif()
  message(STATUS "${gpu}: ${why}, so its kernels are not compiled")
endfunction()

# HIP cannot be used for the reason given: an error where it was asked for.
function(hadal_no_hip why)
  if(HADAL_HIP STREQUAL ON)
    message(FATAL_ERROR "HADAL_HIP=ON cannot be met: ${why}. Set it to AUTO or OFF.")
  endif()
  message(STATUS "HIP: ${why}, so its kernels are not compiled")
endfunction()

# The flags of plain clang with a distribution's older ROCm: its device libraries are named one by
# one, because the file that lists them for these cards is missing there, with the macro and the
# object version that the older headers and libraries expect. amdclang++ brings all it needs.
function(hadal_hip_flags out)
  set(${out} "" PARENT_SCOPE)
  find_path(HADAL_HIP_BITCODE ocml.bc PATH_SUFFIXES amdgcn/bitcode PATHS /usr/lib/x86_64-linux-gnu)
  find_path(HADAL_HIP_HEADERS hip/hip_runtime.h)
  mark_as_advanced(HADAL_HIP_BITCODE HADAL_HIP_HEADERS)
  if(HADAL_HIP_COMPILER MATCHES "amdclang" OR NOT HADAL_HIP_BITCODE)
    return()
  endif()
  set(flags --rocm-device-lib-path=${HADAL_HIP_BITCODE})
  if(HADAL_HIP_HEADERS AND NOT HADAL_HIP_HEADERS STREQUAL "/usr/include")
    list(APPEND flags -isystem ${HADAL_HIP_HEADERS})
  endif()
  foreach(library hip ocml ockl oclc_daz_opt_off oclc_unsafe_math_off oclc_finite_only_off
          oclc_correctly_rounded_sqrt_on oclc_wavefrontsize64_on oclc_isa_version_940
          oclc_abi_version_500)
    list(APPEND flags --hip-device-lib=${library}.bc)
  endforeach()
  if(NOT HADAL_HIP_COMPILER MATCHES "clang\\+\\+-19")
    list(APPEND flags -D__AMDGCN_WAVEFRONT_SIZE=64 -mcode-object-version=5)
  endif()
  set(${out} "${flags}" PARENT_SCOPE)
endfunction()

# HADAL_HIP_ARCHS: the cards that the compiler makes code for with these flags. Asked once, with an
# empty kernel: whether headers, device libraries and linker fit the compiler shows there alone.
function(hadal_probe_hip flags)
  if(HADAL_HIP_PROBED STREQUAL "${HADAL_HIP_COMPILER} ${flags}")
    return()
  endif()
  set(source ${CMAKE_BINARY_DIR}/gpu/probe.hip)
  file(WRITE ${source} "#include <hip/hip_runtime.h>\n__global__ void kernel() {}\n")
  set(archs)
  foreach(arch gfx942 gfx950)
    execute_process(COMMAND ${HADAL_HIP_COMPILER} -x hip -std=c++20 ${flags} --offload-arch=${arch}
                            --offload-device-only --no-gpu-bundle-output -c ${source} -o ${source}.o
                    RESULT_VARIABLE failed ERROR_VARIABLE errors OUTPUT_QUIET)
    if(NOT failed)
      list(APPEND archs ${arch})
    elseif(NOT first_error)
      string(REGEX MATCH "error: [^\n]*" first_error "${errors}")
    endif()
  endforeach()
  set(HADAL_HIP_ERROR "${first_error}" CACHE INTERNAL "")
  set(HADAL_HIP_ARCHS "${archs}" CACHE INTERNAL "")
  set(HADAL_HIP_PROBED "${HADAL_HIP_COMPILER} ${flags}" CACHE INTERNAL "")
endfunction()

# One object file per kernel file and card, made by `command`: a list in which KERNEL (the file),
# SOURCE (a file that includes it), OBJECT and ARCH are filled in. Clang writes no dependency files
# for device code, so every kernel depends on all headers that kernels may include.
file(GLOB HADAL_GPU_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/gpu/*.cu.h)
file(GLOB HADAL_GPU_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/gpu/*
     ${CMAKE_SOURCE_DIR}/src/kernels/*.h ${CMAKE_SOURCE_DIR}/src/base/*.h)
function(hadal_gpu_check target extension archs command)
  set(objects)
  foreach(kernel ${HADAL_GPU_KERNELS})
    cmake_path(GET kernel FILENAME name)
    string(REPLACE ".cu.h" "" name ${name})
    file(STRINGS ${kernel} launched REGEX "KL_KERNEL" LIMIT_COUNT 1)
    if(NOT launched)
      continue()  # a header for kernels
    endif()
    set(source ${CMAKE_BINARY_DIR}/gpu/${name}.${extension})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"kernels/gpu/${name}.cu.h\"\n" @ONLY)
    foreach(arch ${archs})
      set(object ${CMAKE_BINARY_DIR}/gpu/${name}.${arch}.${extension}.o)
      set(filled)
      foreach(word ${command})
        string(REPLACE SOURCE ${source} word "${word}")
        string(REPLACE OBJECT ${object} word "${word}")
        string(REPLACE KERNEL ${kernel} word "${word}")
        string(REPLACE ARCH ${arch} word "${word}")
        list(APPEND filled "${word}")
      endforeach()
      add_custom_command(OUTPUT ${object} COMMAND ${filled} DEPENDS ${source} ${HADAL_GPU_HEADERS}
                         COMMENT "${name} for ${arch}" VERBATIM)
      list(APPEND objects ${object})
    endforeach()
  endforeach()
  add_custom_target(${target} DEPENDS ${objects})
endfunction()

hadal_find_gpu(CUDA "nvcc")
if(HADAL_CUDA_USED)
  hadal_gpu_check(hadal_cuda_check cu "${HADAL_CUDA_ARCHS}"
    "${HADAL_CUDA_COMPILER};-std=c++20;-O2;--expt-relaxed-constexpr;-Werror;all-warnings;\
-gencode=arch=compute_ARCH,code=sm_ARCH;-I${CMAKE_SOURCE_DIR}/src;\
-c;SOURCE;-o;OBJECT")
  message(STATUS "CUDA: ${HADAL_CUDA_COMPILER}, kernels for ${HADAL_CUDA_ARCHS} are compiled by the "
                 "target hadal_cuda_check; this version runs CPU kernels only")
endif()

hadal_find_gpu(HIP "amdclang++;clang++-22;clang++-19")
if(HADAL_HIP_USED)
  hadal_hip_flags(HADAL_HIP_FLAGS)
  hadal_probe_hip("${HADAL_HIP_FLAGS}")
  if(NOT HADAL_HIP_ARCHS)
    hadal_no_hip("${HADAL_HIP_COMPILER} cannot compile for AMD cards (${HADAL_HIP_ERROR}); with \
clang it needs the lld of its version, rocm-device-libs and libamdhip64-dev")
  endif()
endif()
if(HADAL_HIP_USED AND HADAL_HIP_ARCHS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  hadal_gpu_check(hadal_hip_check hip "${HADAL_HIP_ARCHS}"
    "${Python3_EXECUTABLE};${CMAKE_SOURCE_DIR}/tools/kernel_resources.py;KERNEL;\
${HADAL_HIP_COMPILER};-x;hip;-std=c++20;-O2;-Wall;-Werror;--offload-arch=ARCH;${HADAL_HIP_FLAGS};\
--offload-device-only;--no-gpu-bundle-output;-I${CMAKE_SOURCE_DIR}/src;-c;SOURCE;-o;OBJECT")
  message(STATUS "HIP: ${HADAL_HIP_COMPILER}, kernels for ${HADAL_HIP_ARCHS} are compiled by the "
                 "target hadal_hip_check; never run on AMD hardware")
endif()

# hadal_cuda_runtime(target): the CUDA backend, or what stands in for it.
function(hadal_cuda_runtime target)
  set(backend ${CMAKE_SOURCE_DIR}/src/kernels/cuda/cuda_gpu.cpp)
  set(stand_in ${CMAKE_SOURCE_DIR}/src/kernels/cuda/no_cuda.cpp)
  get_target_property(sources ${target} SOURCES)
  list(REMOVE_ITEM sources ${backend} ${stand_in})
  if(TARGET hadal_cuda_kernels)
    set_target_properties(${target} PROPERTIES SOURCES "${sources};${backend}")
    target_link_libraries(${target} PUBLIC hadal_cuda_kernels)
  else()
    set_target_properties(${target} PROPERTIES SOURCES "${sources};${stand_in}")
  endif()
endfunction()
