// Sums of products as the convolution kernels keep them.
#pragma once

namespace memops {

/// A sum in two levels: products go to a short partial sum, full ones to the total, so that the
/// error grows with the root of the number of partial sums and not of the number of products.
template <class A>
class TwoLevelSum {
 public:
  __device__ void add(A a, A b) {
    partial_ = fma(a, b, partial_);
    if (++terms_ == kTerms) {
      total_ += partial_;
      partial_ = 0;
      terms_ = 0;
    }
  }
  __device__ A total() const { return total_ + partial_; }

 private:
  static constexpr int kTerms = 32;
  A total_ = 0;
  A partial_ = 0;
  int terms_ = 0;
};

}  // namespace memops
