// Runs an OpenVINO artifact (`-t openvino`) on the CPU, in fp32, and compares it with its golden vectors.
#include <openvino/openvino.hpp>

#include "golden.hpp"

namespace {

const std::map<std::string, ov::element::Type> types{{"float32", ov::element::f32}, {"int64", ov::element::i64},
                                                     {"int32", ov::element::i32},   {"int8", ov::element::i8},
                                                     {"uint8", ov::element::u8},    {"bool", ov::element::boolean}};

Tensors run(ov::CompiledModel& model, const Artifact& artifact, const Tensors& inputs) {
    ov::InferRequest request = model.create_infer_request();
    for (const std::string& name : artifact.inputs) {
        const Tensor& tensor = inputs.at(name);
        ov::Shape shape(tensor.shape.begin(), tensor.shape.end());
        request.set_tensor(name, ov::Tensor(types.at(tensor.dtype), shape, const_cast<char*>(tensor.data.data())));
    }
    request.infer();
    Tensors answers;
    for (const std::string& name : artifact.outputs) {
        ov::Tensor output = request.get_tensor(name);
        Tensor& tensor = answers[name];
        const ov::Shape shape = output.get_shape();
        tensor.shape.assign(shape.begin(), shape.end());
        for (const auto& [dtype, type] : types) {
            if (type == output.get_element_type()) tensor.dtype = dtype;
        }
        const char* bytes = static_cast<const char*>(output.data());
        tensor.data.assign(bytes, bytes + output.get_byte_size());
    }
    return answers;
}

}  // namespace

int main(int count, char** words) {
    return golden::main(count, words, [](const Artifact& artifact) -> Answer {
        auto model = std::make_shared<ov::CompiledModel>(ov::Core().compile_model(
            artifact.entry, "CPU", ov::hint::inference_precision(ov::element::f32)));
        return [model, artifact](const Tensors& inputs) { return run(*model, artifact, inputs); };
    });
}
