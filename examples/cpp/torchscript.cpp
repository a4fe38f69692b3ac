// Runs a TorchScript file (`-t torchscript`) in LibTorch and compares it with its golden vectors.
#include <torch/script.h>

#include "libtorch.hpp"

int main(int count, char** words) {
    return golden::main(count, words, [](const Artifact& artifact) -> Answer {
        auto module = std::make_shared<torch::jit::Module>(torch::jit::load(artifact.entry));
        return [module, artifact](const Tensors& inputs) {
            c10::InferenceMode guard;
            std::vector<c10::IValue> feed;
            for (const at::Tensor& tensor : libtorch::tensors(artifact, inputs)) feed.emplace_back(tensor);
            c10::IValue answer = module->forward(feed);
            std::vector<at::Tensor> outputs;
            if (answer.isTensor()) outputs.push_back(answer.toTensor());
            else for (const c10::IValue& one : answer.toTupleRef().elements()) outputs.push_back(one.toTensor());
            return libtorch::answers(artifact, outputs);
        };
    });
}
