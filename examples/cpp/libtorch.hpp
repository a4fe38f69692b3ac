// Golden vectors as LibTorch's tensors, and back.
#pragma once

#include <ATen/ATen.h>

#include "golden.hpp"

namespace libtorch {

const std::map<std::string, at::ScalarType> types{{"float32", at::kFloat}, {"int64", at::kLong}, {"int32", at::kInt},
                                                  {"int8", at::kChar},     {"uint8", at::kByte}, {"bool", at::kBool}};

// The inputs in the model's order; LibTorch gets copies, since a model may write into its inputs.
inline std::vector<at::Tensor> tensors(const Artifact& artifact, const Tensors& inputs) {
    std::vector<at::Tensor> found;
    for (const std::string& name : artifact.inputs) {
        const Tensor& tensor = inputs.at(name);
        void* data = const_cast<char*>(tensor.data.data());
        found.push_back(at::from_blob(data, tensor.shape, types.at(tensor.dtype)).clone());
    }
    return found;
}

inline Tensors answers(const Artifact& artifact, const std::vector<at::Tensor>& outputs) {
    if (outputs.size() != artifact.outputs.size()) throw std::runtime_error("the model has another number of outputs");
    Tensors found;
    for (size_t i = 0; i < outputs.size(); i++) {
        at::Tensor whole = outputs[i].contiguous();
        Tensor& tensor = found[artifact.outputs[i]];
        tensor.shape = whole.sizes().vec();
        for (const auto& [name, type] : types) {
            if (type == whole.scalar_type()) tensor.dtype = name;
        }
        const char* bytes = static_cast<const char*>(whole.const_data_ptr());
        tensor.data.assign(bytes, bytes + whole.nbytes());
    }
    return found;
}

}  // namespace libtorch
