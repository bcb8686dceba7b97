// The causal convolution and its gradients as ATen expressions: the CPU's implementation, and what
// functorch transforms, forward-mode AD and double backward differentiate.
#include "causal_conv1d/op.h"

namespace memops {
namespace {

using at::Tensor;

at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : at::kDouble;
}

/// The initial state, or zeros, followed by x.
Tensor line_of(const Tensor& x, const OptionalTensor& initial_state, int64_t width) {
  const auto sizes = x.sym_sizes();
  const Tensor before = initial_state.has_value()
                            ? *initial_state
                            : at::zeros_symint({sizes[0], sizes[1], width - 1}, x.options());
  return at::cat({before, x}, 2);
}

/// The products of a causal convolution, tap by tap.
class Taps {
 public:
  Taps(const Tensor& x, const Tensor& weight, const OptionalTensor& initial_state,
       const OptionalTensor& seq_idx)
      : width_(weight.sym_size(1).guard_int(__FILE__, __LINE__)),
        length_(x.sym_size(2)),
        line_(line_of(x, initial_state, width_)),
        wide_line_(line_.to(sum_type(x.scalar_type()))),
        wide_weight_(weight.to(sum_type(x.scalar_type()))) {
    if (!seq_idx.has_value() || TORCH_GUARD_OR_FALSE(length_.sym_eq(0))) return;
    const Tensor first = seq_idx->slice(1, 0, 1).expand_symint({x.sym_size(0), width_ - 1});
    owner_ = at::cat({first, *seq_idx}, 1).unsqueeze(1);
    own_ = seq_idx->unsqueeze(1);
  }

  int64_t width() const { return width_; }

  /// What tap k meets at each position, [B, C, L]; zeros where the tap does not count.
  Tensor values(int64_t k) const { return counted(k, window(wide_line_, k)); }

  /// Tap k of each channel, where the tap counts.
  Tensor weights(int64_t k) const {
    return counted(k, wide_weight_.select(1, k).unsqueeze(0).unsqueeze(2));
  }

  /// `tensor` where tap k counts, else zeros: nothing beyond a boundary leaks, NaN neither.
  Tensor counted(int64_t k, const Tensor& tensor) const {
    if (!owner_.defined()) return tensor;
    return at::where(window(owner_, k) == own_, tensor, at::zeros({}, tensor.options()));
  }

  /// The sum over the taps, before silu.
  Tensor sum(const OptionalTensor& bias) const {
    Tensor total = bias.has_value() ? bias->to(wide_line_.scalar_type()).unsqueeze(0).unsqueeze(2)
                                    : at::zeros({1, 1, 1}, wide_line_.options());
    for (int64_t k = 0; k < width_; ++k) total = at::addcmul(total, weights(k), values(k));
    return total;
  }

  /// The gradient of the line.
  Tensor gathered(const Tensor& dz) const {
    Tensor total = at::zeros({1, 1, 1}, dz.options());
    for (int64_t k = 0; k < width_; ++k) {
      const Tensor part = weights(k) * counted(k, dz);
      total = total + at::constant_pad_nd_symint(part, {k, width_ - 1 - k});
    }
    return total;
  }

  Tensor weight_gradient(const Tensor& dz) const {
    std::vector<Tensor> columns;
    for (int64_t k = 0; k < width_; ++k) {
      columns.push_back((counted(k, dz) * values(k)).sum(at::IntArrayRef{0, 2}));
    }
    return at::stack(columns, 1);
  }

  /// The last width - 1 values, bit for bit.
  Tensor last_state() const {
    return at::clone(line_.slice_symint(2, length_, length_ + width_ - 1),
                     at::MemoryFormat::Contiguous);
  }

 private:
  Tensor window(const Tensor& tensor, int64_t k) const {
    return tensor.slice_symint(2, k, length_ + k);
  }

  int64_t width_;
  c10::SymInt length_;
  Tensor line_;
  Tensor wide_line_;
  Tensor wide_weight_;
  Tensor owner_;  // the sequence of each value of the line; undefined where there is one sequence
  Tensor own_;
};

/// Written out: at::silu_backward has no derivative of its own.
Tensor silu_derivative(const Tensor& z) {
  const Tensor sigmoid = at::sigmoid(z);
  return sigmoid * (1 + z * (1 - sigmoid));
}

}  // namespace

std::tuple<Tensor, Tensor> causal_composite(const Tensor& x, const Tensor& weight,
                                            const OptionalTensor& bias,
                                            const OptionalTensor& initial_state,
                                            const OptionalTensor& seq_idx, int64_t silu,
                                            int64_t final_state) {
  check_causal(x, weight, bias, initial_state, seq_idx);
  const Taps taps(x, weight, initial_state, seq_idx);
  const Tensor sum = taps.sum(bias);
  const Tensor y = silu != 0 ? at::silu(sum) : sum;
  return {y.to(x.scalar_type()),
          final_state != 0 ? taps.last_state() : at::empty({0}, x.options())};
}

CausalGradients causal_backward_composite(const Tensor& grad,
                                          const OptionalTensor& grad_final_state, const Tensor& x,
                                          const Tensor& weight, const OptionalTensor& bias,
                                          const OptionalTensor& initial_state,
                                          const OptionalTensor& seq_idx, int64_t silu,
                                          std::array<bool, 4> output_mask) {
  check_causal(x, weight, bias, initial_state, seq_idx);
  check_causal_gradients(grad, grad_final_state, x, weight);
  const at::ScalarType type = x.scalar_type();
  const Taps taps(x, weight, initial_state, seq_idx);
  const Tensor wide_grad = grad.to(sum_type(type));
  const Tensor dz = silu != 0 ? wide_grad * silu_derivative(taps.sum(bias)) : wide_grad;

  const auto [wants_x, wants_weight, wants_bias, wants_state] = output_mask;
  const Tensor unwanted = at::empty({0}, x.options());
  CausalGradients gradients{unwanted, unwanted, unwanted, unwanted};
  if (wants_x || wants_state) {
    Tensor line = taps.gathered(dz);
    if (grad_final_state.has_value()) {
      const Tensor wide_final = grad_final_state->to(sum_type(type));
      line = line + at::constant_pad_nd_symint(wide_final, {x.sym_size(2), 0});
    }
    line = line.to(type);
    if (wants_x) std::get<0>(gradients) = line.slice(2, taps.width() - 1);
    if (wants_state) std::get<3>(gradients) = line.slice(2, 0, taps.width() - 1);
  }
  if (wants_weight) std::get<1>(gradients) = taps.weight_gradient(dz).to(type);
  if (wants_bias) std::get<2>(gradients) = dz.sum(at::IntArrayRef{0, 2}).to(type);
  return gradients;
}

}  // namespace memops
