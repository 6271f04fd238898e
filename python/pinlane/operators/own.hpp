// Operators that PyTorch computes only on a GPU, in terms of operators of the host.
#pragma once

#include "operator.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace pinlane::own {

inline at::Tensor tensor(const IValue& v) { return v.isNone() ? at::Tensor() : v.toTensor(); }

inline std::vector<IValue> take(Stack& stack) { return std::exchange(stack, {}); }

template <class... Results>
void give(Stack& stack, Results&&... results) {
  (stack.emplace_back(std::forward<Results>(results)), ...);
}

inline std::optional<at::Tensor> optional(const IValue& v) {
  auto t = tensor(v);
  return t.defined() ? std::optional(t) : std::nullopt;
}

inline at::Tensor columns(std::vector<at::Tensor> parts) { return at::cat(parts, 1); }

/// dropout: (input, p, train or None), and the generator that the launch adds.
inline void native_dropout(Stack& stack) {
  const auto a = take(stack);
  const auto input = a[0].toTensor();
  const double p = a[1].toDouble();
  const bool train = a[2].isNone() || a[2].toBool();
  if (!train) return give(stack, input.clone(), at::ones_like(input, at::kBool));
  auto mask = at::empty_like(input, at::kFloat);
  mask.bernoulli_(1 - p, a.at(3).toGenerator());
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  give(stack, input * mask.to(input.scalar_type()) * scale, mask.to(at::kBool));
}

inline void fused_dropout(Stack& stack) {
  const auto a = take(stack);
  const auto input = a[0].toTensor();
  auto mask = at::empty_like(input, at::kFloat);
  mask.bernoulli_(a[1].toDouble(), a[2].toGenerator());
  give(stack, input * mask.to(input.scalar_type()) / a[1].toDouble(), mask.to(at::kByte));
}

inline void masked_scale(Stack& stack) {
  const auto a = take(stack);
  const auto input = a[0].toTensor();
  give(stack, input * a[1].toTensor().to(input.scalar_type()) * a[2].toDouble());
}

inline at::Tensor with_bias(const at::Tensor& gates, const IValue& bias) {
  return tensor(bias).defined() ? gates + tensor(bias) : gates;
}

inline void lstm_cell(Stack& stack) {
  const auto a = take(stack);
  const auto gates = with_bias(a[0].toTensor(), a[3]) + with_bias(a[1].toTensor(), a[4]);
  const auto parts = gates.chunk(4, 1);
  const auto i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(),
             o = parts[3].sigmoid();
  const auto cy = f * a[2].toTensor() + i * g;
  give(stack, o * cy.tanh(), cy, columns({i, f, g, o}));
}

inline void lstm_cell_backward(Stack& stack) {
  const auto a = take(stack);
  const auto cx = a[2].toTensor(), t = a[3].toTensor().tanh();
  const auto grad_hy = tensor(a[0]).defined() ? tensor(a[0]) : at::zeros_like(cx);
  const auto grad_cy = tensor(a[1]).defined() ? tensor(a[1]) : at::zeros_like(cx);
  const auto parts = a[4].toTensor().chunk(4, 1);
  const auto &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
  const auto grad = grad_hy * o * (1 - t * t) + grad_cy;
  const auto gates = columns({grad * g * i * (1 - i), grad * cx * f * (1 - f),
                              grad * i * (1 - g * g), grad_hy * t * o * (1 - o)});
  give(stack, gates, grad * f, a[5].toBool() ? gates.sum(0) : at::Tensor());
}

inline void gru_cell(Stack& stack) {
  const auto a = take(stack);
  const auto hx = a[2].toTensor();
  const auto in = with_bias(a[0].toTensor(), a[3]).chunk(3, 1);
  const auto hidden = with_bias(a[1].toTensor(), a[4]).chunk(3, 1);
  const auto r = (in[0] + hidden[0]).sigmoid(), z = (in[1] + hidden[1]).sigmoid();
  const auto n = (in[2] + r * hidden[2]).tanh();
  give(stack, n + z * (hx - n), columns({r, z, n, hx, hidden[2]}));
}

inline void gru_cell_backward(Stack& stack) {
  const auto a = take(stack);
  const auto grad = a[0].toTensor();
  const auto parts = a[1].toTensor().chunk(5, 1);
  const auto &r = parts[0], &z = parts[1], &n = parts[2], &hx = parts[3], &hn = parts[4];
  const auto grad_z = grad * (hx - n) * (1 - z) * z;
  const auto grad_n = grad * (1 - z) * (1 - n * n);
  const auto grad_r = grad_n * hn * (1 - r) * r;
  const auto in = columns({grad_r, grad_z, grad_n});
  const auto hidden = columns({grad_r, grad_z, grad_n * r});
  const bool bias = a[2].toBool();
  give(stack, in, hidden, grad * z, bias ? in.sum(0) : at::Tensor(),
       bias ? hidden.sum(0) : at::Tensor());
}

inline void cudnn_batch_norm(Stack& stack) {
  const auto a = take(stack);
  auto [out, mean, invstd] = at::native_batch_norm(
      a[0].toTensor(), optional(a[1]), optional(a[2]), optional(a[3]), optional(a[4]),
      a[5].toBool(), a[6].toDouble(), a[7].toDouble());
  give(stack, out, mean, invstd, at::empty({0}, at::kByte));
}

inline void cudnn_batch_norm_backward(Stack& stack) {
  const auto a = take(stack);
  auto [input, weight, bias] = at::native_batch_norm_backward(
      a[1].toTensor(), a[0].toTensor(), optional(a[2]), optional(a[3]), optional(a[4]),
      optional(a[5]), optional(a[6]), true, a[7].toDouble(), {true, true, true});
  give(stack, input, weight, bias);
}

/// cuDNN's are bilinear, with zeros outside and aligned corners.
inline void cudnn_grid_sampler(Stack& stack) {
  const auto a = take(stack);
  give(stack, at::grid_sampler_2d(a[0].toTensor(), a[1].toTensor(), 0, 0, true));
}

inline void cudnn_grid_sampler_backward(Stack& stack) {
  const auto a = take(stack);
  auto [input, grid] = at::grid_sampler_2d_backward(a[2].toTensor(), a[0].toTensor(),
                                                    a[1].toTensor(), 0, 0, true, {true, true});
  give(stack, input, grid);
}

inline c10::ScalarType dtype(const IValue& v) { return static_cast<c10::ScalarType>(v.toInt()); }

/// mm and bmm with a type of the result.
inline void matmul_dtype(Stack& stack) {
  const auto a = take(stack);
  give(stack, at::matmul(a[0].toTensor().to(dtype(a[2])), a[1].toTensor().to(dtype(a[2]))));
}

/// addmm and baddbmm with a type of the result.
inline void addmm_dtype(Stack& stack) {
  const auto a = take(stack);
  const auto product =
      at::matmul(a[1].toTensor().to(dtype(a[3])), a[2].toTensor().to(dtype(a[3])));
  give(stack, at::add(product * a[5].toScalar(), a[0].toTensor().to(dtype(a[3])),
                      a[4].toScalar()));
}

/// The form with `out` of an operator.
template <Own compute>
void into_out(Stack& stack) {
  const auto out = stack.back().toTensor();
  stack.pop_back();
  compute(stack);
  out.copy_(stack.back().toTensor());
  stack.back() = out;
}

inline void rms_norm_backward(Stack& stack) {
  const auto a = take(stack);
  const auto grad = a[0].toTensor(), input = a[1].toTensor(), rstd = a[3].toTensor();
  const auto weight = tensor(a[4]);
  const auto mask = a[5].toBoolList();
  const auto normalized = static_cast<int64_t>(a[2].toIntVector().size());
  std::vector<int64_t> inner, outer;
  for (int64_t d = 0; d < input.dim(); ++d)
    (d < input.dim() - normalized ? outer : inner).push_back(d);
  const auto unit = input * rstd;
  const auto scaled = weight.defined() ? grad * weight : grad;
  at::Tensor grad_input, grad_weight;
  if (mask[0]) grad_input = (scaled - unit * (scaled * unit).mean(inner, true)) * rstd;
  if (mask[1] && weight.defined())
    grad_weight = outer.empty() ? grad * unit : (grad * unit).sum(outer);
  give(stack, grad_input, grad_weight);
}

inline Own find(const std::string& name, const std::string& overload) {
  static const std::unordered_map<std::string, Own> all = {
      {"native_dropout", native_dropout},
      {"_fused_dropout", fused_dropout},
      {"_masked_scale", masked_scale},
      {"_thnn_fused_lstm_cell", lstm_cell},
      {"_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
      {"_thnn_fused_gru_cell", gru_cell},
      {"_thnn_fused_gru_cell_backward", gru_cell_backward},
      {"cudnn_batch_norm", cudnn_batch_norm},
      {"cudnn_batch_norm_backward", cudnn_batch_norm_backward},
      {"cudnn_grid_sampler", cudnn_grid_sampler},
      {"cudnn_grid_sampler_backward", cudnn_grid_sampler_backward},
      {"mm.dtype", matmul_dtype},
      {"bmm.dtype", matmul_dtype},
      {"addmm.dtype", addmm_dtype},
      {"baddbmm.dtype", addmm_dtype},
      {"mm.dtype_out", into_out<matmul_dtype>},
      {"bmm.dtype_out", into_out<matmul_dtype>},
      {"addmm.dtype_out", into_out<addmm_dtype>},
      {"baddbmm.dtype_out", into_out<addmm_dtype>},
      {"_fused_rms_norm_backward", rms_norm_backward},
  };
  auto found = all.find(overload.empty() ? name : name + "." + overload);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace pinlane::own
