# HADAL_CUDA and HADAL_HIP = AUTO | ON | OFF. AUTO takes what is there and says why where it is not.
# The targets hadal_cuda_check and hadal_hip_check compile every portable kernel of src/kernels/gpu
# for its cards, tests_cuda builds the tests of tests/gpu for CUDA; each says why where it cannot.
# None is part of the default build.
set(HADAL_CUDA_ARCHS 90a CACHE STRING "CUDA architectures, e.g. 80;89;90a;100;120")
foreach(gpu CUDA HIP)
  set(HADAL_${gpu} AUTO CACHE STRING "Build the ${gpu} kernels: AUTO, ON or OFF")
  set_property(CACHE HADAL_${gpu} PROPERTY STRINGS AUTO ON OFF)
  if(NOT HADAL_${gpu} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "HADAL_${gpu} is '${HADAL_${gpu}}': set it to AUTO, ON or OFF")
  endif()
endforeach()

# Says why a kind of GPU is passed over, here and where its kernels are asked for; ON makes that an
# error.
function(hadal_skip_gpu gpu why)
  if(HADAL_${gpu} STREQUAL ON)
    message(FATAL_ERROR "HADAL_${gpu}=ON cannot be met: ${why}. Set it to AUTO or OFF.")
  endif()
  message(STATUS "${gpu}: ${why}, so its kernels are not compiled")
  string(TOLOWER ${gpu} lower)
  add_custom_target(hadal_${lower}_check COMMAND ${CMAKE_COMMAND} -E echo
                    "${gpu}: ${why}, so its kernels are not compiled" VERBATIM)
endfunction()

# Sets HADAL_<gpu>_COMPILER and HADAL_<gpu>_USED.
function(hadal_find_gpu gpu compiler_names)
  set(HADAL_${gpu}_USED FALSE PARENT_SCOPE)
  if(HADAL_${gpu} STREQUAL OFF)
    hadal_skip_gpu(${gpu} "off (HADAL_${gpu}=OFF)")
    return()
  endif()
  find_program(HADAL_${gpu}_COMPILER NAMES ${compiler_names} PATHS /opt/rocm/llvm/bin)
  mark_as_advanced(HADAL_${gpu}_COMPILER)
  if(HADAL_${gpu}_COMPILER)
    set(HADAL_${gpu}_USED TRUE PARENT_SCOPE)
    return()
  endif()
  list(JOIN compiler_names " or " wanted)
  hadal_skip_gpu(${gpu} "no compiler found (looked for ${wanted})")
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

# A file for each file with kernels, which includes it: compilers go by the extension.
file(GLOB HADAL_GPU_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/gpu/*.cu.h)
function(hadal_kernel_sources out extension)
  set(sources)
  foreach(kernel ${HADAL_GPU_KERNELS})
    file(STRINGS ${kernel} launched REGEX "KL_KERNEL" LIMIT_COUNT 1)
    if(NOT launched)
      continue()  # a header for kernels
    endif()
    cmake_path(GET kernel FILENAME header)
    string(REPLACE ".cu.h" ".${extension}" name ${header})
    set(source ${CMAKE_BINARY_DIR}/gpu/${name})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"kernels/gpu/${header}\"\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()

# One object per source and entry of `archs`, made by `command`: a list in which SOURCE, OBJECT, ARCH
# and NAME (of the source, without its extension) are filled in. Clang writes no dependency files for
# device code, so every object depends on all headers that kernels may include.
file(GLOB HADAL_GPU_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/gpu/*
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.h ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.h
     ${CMAKE_SOURCE_DIR}/src/kernels/*.h ${CMAKE_SOURCE_DIR}/src/base/*.h)
function(hadal_gpu_objects out archs command sources)
  set(objects)
  foreach(source ${sources})
    cmake_path(GET source FILENAME file)
    cmake_path(GET source STEM name)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    foreach(arch ${archs})
      set(object ${CMAKE_BINARY_DIR}/gpu/${folder}_${file}.${arch}.o)
      set(filled)
      foreach(word ${command})
        string(REPLACE SOURCE ${source} word "${word}")
        string(REPLACE OBJECT ${object} word "${word}")
        string(REPLACE ARCH ${arch} word "${word}")
        string(REPLACE NAME ${name} word "${word}")
        list(APPEND filled "${word}")
      endforeach()
      add_custom_command(OUTPUT ${object} COMMAND ${filled} DEPENDS ${source} ${HADAL_GPU_HEADERS}
                         COMMENT "${file} for ${arch}" VERBATIM)
      list(APPEND objects ${object})
    endforeach()
  endforeach()
  set(${out} "${objects}" PARENT_SCOPE)
endfunction()

# hadal_cuda_check: the portable kernels and those of src/kernels/cuda, each compiled once for all
# HADAL_CUDA_ARCHS. hadal_cuda_kernels: the same as a library, with the static CUDA runtime, which
# looks for the driver when it is first used.
function(hadal_cuda_library)
  file(GLOB tuned CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  hadal_kernel_sources(portable cu)
  set(codes)
  foreach(arch ${HADAL_CUDA_ARCHS})
    list(APPEND codes -gencode=arch=compute_${arch},code=sm_${arch})
  endforeach()
  string(JOIN "-" archs ${HADAL_CUDA_ARCHS})
  hadal_gpu_objects(objects ${archs}
    "${HADAL_CUDA_COMPILER};-std=c++20;-O2;--expt-relaxed-constexpr;-lineinfo;-Werror;all-warnings;\
-Xcompiler=-fPIC;${codes};-I${CMAKE_SOURCE_DIR}/src;-c;SOURCE;-o;OBJECT" "${portable};${tuned}")
  add_custom_target(hadal_cuda_check DEPENDS ${objects})
  message(STATUS "CUDA: ${HADAL_CUDA_COMPILER}, kernels for ${HADAL_CUDA_ARCHS} are compiled by "
                 "the target hadal_cuda_check")

  file(REAL_PATH ${HADAL_CUDA_COMPILER} nvcc)
  cmake_path(GET nvcc PARENT_PATH root)
  cmake_path(GET root PARENT_PATH root)
  find_library(HADAL_CUDART cudart_static HINTS ${root} ${root}/targets/x86_64-linux
               PATH_SUFFIXES lib64 lib)
  find_path(HADAL_CUDA_HEADERS cuda_runtime_api.h HINTS ${root} ${root}/targets/x86_64-linux
            PATH_SUFFIXES include)
  mark_as_advanced(HADAL_CUDART HADAL_CUDA_HEADERS)
  if(NOT HADAL_CUDART OR NOT HADAL_CUDA_HEADERS)
    set(why "CUDA: no libcudart_static.a or cuda_runtime_api.h beside ${nvcc}, so no tests for it")
    message(STATUS ${why})
    add_custom_command(TARGET hadal_cuda_check POST_BUILD COMMAND ${CMAKE_COMMAND} -E echo ${why})
    return()
  endif()
  add_library(hadal_cuda_kernels STATIC EXCLUDE_FROM_ALL ${objects})
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set_target_properties(hadal_cuda_kernels PROPERTIES LINKER_LANGUAGE CXX)
  add_dependencies(hadal_cuda_kernels hadal_cuda_check)
  target_include_directories(hadal_cuda_kernels SYSTEM INTERFACE ${HADAL_CUDA_HEADERS})
  target_link_libraries(hadal_cuda_kernels INTERFACE ${HADAL_CUDART} ${CMAKE_DL_LIBS} rt
                        Threads::Threads)
endfunction()

# A test of tests/gpu that names its target (target::op) also becomes the program cuda_<file>_test.
# So that it runs on another Linux than this, it takes the C++ library along and of hadal the files
# that it uses, without what their libraries name for others.
function(hadal_cuda_test source)
  file(STRINGS ${source} neutral REGEX "target::" LIMIT_COUNT 1)
  if(NOT neutral OR NOT TARGET hadal_cuda_kernels)
    return()
  endif()
  cmake_path(GET source STEM test)
  set(test cuda_${test})
  add_executable(${test} EXCLUDE_FROM_ALL ${source} ${CMAKE_SOURCE_DIR}/tests/gpu/target_cuda.cpp)
  target_include_directories(${test} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${test} PRIVATE HADAL_TEST_CUDA)
  target_link_libraries(${test} PRIVATE hadal_cuda_kernels $<TARGET_FILE:hadal_kernels>
                        $<TARGET_FILE:hadal_base> GTest::gtest)
  add_dependencies(${test} hadal_kernels hadal_base)
  target_link_options(${test} PRIVATE -static-libstdc++ -static-libgcc)
  add_dependencies(tests_cuda ${test})
endfunction()

hadal_find_gpu(CUDA "nvcc")
if(HADAL_CUDA_USED)
  hadal_cuda_library()
endif()
add_custom_target(tests_cuda)
add_dependencies(tests_cuda hadal_cuda_check)

hadal_find_gpu(HIP "amdclang++;clang++-22;clang++-19")
if(HADAL_HIP_USED)
  hadal_hip_flags(HADAL_HIP_FLAGS)
  hadal_probe_hip("${HADAL_HIP_FLAGS}")
  if(NOT HADAL_HIP_ARCHS)
    hadal_skip_gpu(HIP "${HADAL_HIP_COMPILER} cannot compile for AMD cards (${HADAL_HIP_ERROR}); with \
clang it needs the lld of its version, rocm-device-libs and libamdhip64-dev")
  endif()
endif()
if(HADAL_HIP_USED AND HADAL_HIP_ARCHS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  hadal_kernel_sources(sources hip)
  hadal_gpu_objects(objects "${HADAL_HIP_ARCHS}"
    "${Python3_EXECUTABLE};${CMAKE_SOURCE_DIR}/tools/kernel_resources.py;\
${CMAKE_SOURCE_DIR}/src/kernels/gpu/NAME.cu.h;\
${HADAL_HIP_COMPILER};-x;hip;-std=c++20;-O2;-Wall;-Werror;--offload-arch=ARCH;${HADAL_HIP_FLAGS};\
--offload-device-only;--no-gpu-bundle-output;-I${CMAKE_SOURCE_DIR}/src;-c;SOURCE;-o;OBJECT" "${sources}")
  add_custom_target(hadal_hip_check DEPENDS ${objects})
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
