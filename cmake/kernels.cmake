# The CUDA kernels, compiled by nvcc through cmake/compile_kernel.py, which keeps the compiler's
# resource report beside each object and fails the build on spills and on warnings that cost speed.
# nvcc is called directly, not as a CMake language, so that the one from PyPI's packages serves too.

get_filename_component(MEMOPS_CUDA_ROOT "${MEMOPS_NVCC}" DIRECTORY)
get_filename_component(MEMOPS_CUDA_ROOT "${MEMOPS_CUDA_ROOT}" DIRECTORY)
find_path(MEMOPS_CUDA_INCLUDE cuda_runtime.h REQUIRED NO_DEFAULT_PATH
  PATHS "${MEMOPS_CUDA_ROOT}/include" "${MEMOPS_CUDA_ROOT}/targets/x86_64-linux/include")
find_file(MEMOPS_CUDART NAMES libcudart.so libcudart.so.13 REQUIRED NO_DEFAULT_PATH
  PATHS "${MEMOPS_CUDA_ROOT}/lib64" "${MEMOPS_CUDA_ROOT}/lib"
        "${MEMOPS_CUDA_ROOT}/targets/x86_64-linux/lib")

# Ninja reads nvcc's depfiles as they are (all paths in them are absolute). The new behaviour rewrites
# them by a command that names this CMake, and the CMake of another environment would compile all anew.
# Chosen on purpose, so setup.py passes -Wno-deprecated.
cmake_policy(SET CMP0116 OLD)

function(memops_kernel_library target)
  set(gencode "")
  foreach(arch IN LISTS MEMOPS_CUDA_ARCHITECTURES)
    if(arch MATCHES "^(.+)-virtual$")
      list(APPEND gencode "-gencode=arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1}")
    else()
      list(APPEND gencode "-gencode=arch=compute_${arch},code=sm_${arch}")
    endif()
  endforeach()

  set(objects "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}")
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}/csrc" OUTPUT_VARIABLE relative)
    string(REPLACE "/" "_" name "${relative}")
    set(object "${CMAKE_BINARY_DIR}/kernels/${name}.o")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND python3 "${CMAKE_SOURCE_DIR}/cmake/compile_kernel.py"
              --report "${CMAKE_BINARY_DIR}/kernels/${name}.ptxas"
              -- "${MEMOPS_NVCC}" -c "${source}" -o "${object}"
              -MD -MF "${object}.d" -MT "${object}"
              -std=c++20 -O3 -lineinfo ${gencode} "-I${CMAKE_SOURCE_DIR}/csrc"
              -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra,-Werror
              -Werror=all-warnings -Xptxas=-v
      DEPENDS "${source}" "${CMAKE_SOURCE_DIR}/cmake/compile_kernel.py"
      DEPFILE "${object}.d"
      COMMENT "nvcc csrc/${relative}"
      VERBATIM)
    list(APPEND objects "${object}")
  endforeach()

  add_library(${target} SHARED ${objects})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PRIVATE memops_plan "${MEMOPS_CUDART}")
endfunction()
