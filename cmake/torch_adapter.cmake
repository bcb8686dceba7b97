# The adapter libraries between the ops and one PyTorch. find_package(Torch) is not used: it wants a
# whole CUDA toolkit, and it links libtorch_python, which ties a library to one Python version.

function(memops_torch_adapter version torch_dir)
  if(NOT EXISTS "${torch_dir}/include/torch/library.h")
    message(FATAL_ERROR "MEMOPS_TORCH_DIR=${torch_dir} holds no PyTorch headers")
  endif()
  set(includes "${torch_dir}/include" "${torch_dir}/include/torch/csrc/api/include")

  # The version is in the targets' names, so that each PyTorch keeps its own objects in one build folder.
  set(adapter "memops_torch${version}")
  add_library(${adapter} SHARED ${MEMOPS_TORCH_SOURCES})
  target_link_libraries(${adapter} PRIVATE memops_plan
    "${torch_dir}/lib/libtorch_cpu.so" "${torch_dir}/lib/libc10.so")
  set(adapters ${adapter})

  if(MEMOPS_CUDA)
    add_library(${adapter}_cuda SHARED ${MEMOPS_TORCH_CUDA_SOURCES})
    target_include_directories(${adapter}_cuda SYSTEM PRIVATE "${MEMOPS_CUDA_INCLUDE}")
    target_link_libraries(${adapter}_cuda PRIVATE ${adapter} memops_plan memops_kernels
      "${torch_dir}/lib/libtorch_cpu.so" "${torch_dir}/lib/libc10.so"
      "${torch_dir}/lib/libc10_cuda.so" "${MEMOPS_CUDART}")
    list(APPEND adapters ${adapter}_cuda)
  endif()

  foreach(target IN LISTS adapters)
    target_include_directories(${target} SYSTEM PRIVATE ${includes})
    # Missing initialisers and unused parameters come from PyTorch's macros, and so do the file names
    # in its messages.
    target_compile_options(${target} PRIVATE -Wno-unused-parameter -Wno-missing-field-initializers
      "-ffile-prefix-map=${torch_dir}/=torch/")
    target_link_options(${target} PRIVATE -Wl,--allow-shlib-undefined)
    target_precompile_headers(${target} PRIVATE "${CMAKE_SOURCE_DIR}/csrc/common/torch/precompiled.h")
  endforeach()
endfunction()
