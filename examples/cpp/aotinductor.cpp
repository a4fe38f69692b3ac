// Runs an AOTInductor package (`-t aoti`) in LibTorch and compares it with its golden vectors.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "libtorch.hpp"

int main(int count, char** words) {
    return golden::main(count, words, [](const Artifact& artifact) -> Answer {
        auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(artifact.entry);
        return [loader, artifact](const Tensors& inputs) {
            c10::InferenceMode guard;
            return libtorch::answers(artifact, loader->run(libtorch::tensors(artifact, inputs)));
        };
    });
}
