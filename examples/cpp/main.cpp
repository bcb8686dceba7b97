// Calls torch.ops.memops.matmul from C++, lets the gradient flow, and compares both with PyTorch's.
// Arguments: the libraries of torch_memops, in the order of torch_memops.library_paths(). Exits
// with 1 when one cannot be loaded or a value differs.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdlib>
#include <iostream>

namespace {

/// An op is there once its library is loaded. Not linked: the library finds LibTorch's CUDA side
/// only after the program has loaded it.
bool load(const char* library) {
  if (dlopen(library, RTLD_NOW) != nullptr) return true;
  std::cerr << "cannot load " << library << ": " << dlerror() << "\n";
  return false;
}

at::Tensor memops_matmul(const at::Tensor& a, const at::Tensor& b) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("memops::matmul", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  return op.call(a, b);
}

bool same(const char* what, const at::Tensor& ours, const at::Tensor& theirs) {
  const bool close = ours.sizes() == theirs.sizes() && at::allclose(ours, theirs, 1e-4, 1e-4);
  std::cout << what << " " << ours.sizes() << (close ? " equals" : " DIFFERS FROM")
            << " PyTorch's\n";
  return close;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: matmul_example LIBRARY...\n";
    return EXIT_FAILURE;
  }
  for (int i = 1; i < argc; ++i) {
    if (!load(argv[i])) return EXIT_FAILURE;
  }
  const auto device = at::hasCUDA() ? at::kCUDA : at::kCPU;
  const at::TensorOptions options = at::device(device).dtype(at::kFloat);
  at::manual_seed(0);
  const at::Tensor a = at::randn({4, 33, 65}, options).set_requires_grad(true);
  const at::Tensor b = at::randn({17, 65}, options).set_requires_grad(true);

  const at::Tensor out = memops_matmul(a, b.t());
  out.square().sum().backward();

  const at::Tensor reference = at::matmul(a.detach(), b.detach().t());
  const at::Tensor grad = 2 * reference;
  const bool ok =
      same("result", out.detach(), reference) &&
      same("gradient of a", a.grad(), at::matmul(grad, b.detach())) &&
      same("gradient of b", b.grad(), at::matmul(grad.flatten(0, 1).t(), a.detach().flatten(0, 1)));
  std::cout << "device " << device << ": " << (ok ? "ok" : "failed") << "\n";
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
