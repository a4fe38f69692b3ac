// Runs an ONNX artifact by ONNX Runtime's C API and compares it with its golden vectors.
#include <onnxruntime_c_api.h>

#include <memory>

#include "golden.hpp"

namespace {

// The library may be newer than the header: the API only grows.
const OrtApi& api = *OrtGetApiBase()->GetApi(ORT_API_VERSION);

void check(OrtStatus* status) {
    if (status == nullptr) return;
    std::string said = api.GetErrorMessage(status);
    api.ReleaseStatus(status);
    throw std::runtime_error("ONNX Runtime: " + said);
}

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

// What a function of the API makes, freed with its owner.
template <class T, class Make>
Owned<T> made(void(ORT_API_CALL* release)(T*), Make make) {
    T* found = nullptr;
    check(make(&found));
    return {found, release};
}

const std::map<std::string, ONNXTensorElementDataType> types{
    {"float32", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT}, {"int64", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {"int32", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},   {"int8", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},
    {"uint8", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},   {"bool", ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL}};

Tensor tensor_of(OrtValue* value) {
    auto info = made<OrtTensorTypeAndShapeInfo>(api.ReleaseTensorTypeAndShapeInfo,
                                                [&](auto** out) { return api.GetTensorTypeAndShape(value, out); });
    size_t rank = 0;
    ONNXTensorElementDataType type;
    check(api.GetDimensionsCount(info.get(), &rank));
    check(api.GetTensorElementType(info.get(), &type));
    Tensor found;
    found.shape.resize(rank);
    check(api.GetDimensions(info.get(), found.shape.data(), rank));
    for (const auto& [name, known] : types) {
        if (known == type) found.dtype = name;
    }
    void* data = nullptr;
    check(api.GetTensorMutableData(value, &data));
    const char* bytes = static_cast<const char*>(data);
    found.data.assign(bytes, bytes + found.count() * size_of(found.dtype));
    return found;
}

class Session {
  public:
    explicit Session(const Artifact& artifact) : artifact_(artifact) {
        auto options = made<OrtSessionOptions>(api.ReleaseSessionOptions,
                                               [](auto** out) { return api.CreateSessionOptions(out); });
        session_ = made<OrtSession>(api.ReleaseSession, [&](auto** out) {
            return api.CreateSession(environment_.get(), artifact.entry.c_str(), options.get(), out);
        });
    }

    Tensors operator()(const Tensors& inputs) const {
        std::vector<Owned<OrtValue>> values;
        std::vector<const OrtValue*> feed;
        std::vector<const char*> names, outputs;
        for (const std::string& name : artifact_.inputs) {
            const Tensor& tensor = inputs.at(name);
            values.push_back(made<OrtValue>(api.ReleaseValue, [&](auto** out) {
                void* data = const_cast<char*>(tensor.data.data());  // ONNX Runtime does not write into inputs
                return api.CreateTensorWithDataAsOrtValue(memory_.get(), data, tensor.data.size(), tensor.shape.data(),
                                                          tensor.shape.size(), types.at(tensor.dtype), out);
            }));
            feed.push_back(values.back().get());
            names.push_back(name.c_str());
        }
        for (const std::string& name : artifact_.outputs) outputs.push_back(name.c_str());
        std::vector<OrtValue*> found(outputs.size());
        check(api.Run(session_.get(), nullptr, names.data(), feed.data(), feed.size(), outputs.data(), outputs.size(),
                      found.data()));
        Tensors answers;
        for (size_t i = 0; i < found.size(); i++) {
            Owned<OrtValue> value(found[i], api.ReleaseValue);
            answers[outputs[i]] = tensor_of(value.get());
        }
        return answers;
    }

  private:
    Artifact artifact_;
    Owned<OrtEnv> environment_ = made<OrtEnv>(
        api.ReleaseEnv, [](auto** out) { return api.CreateEnv(ORT_LOGGING_LEVEL_WARNING, "edgekit", out); });
    Owned<OrtMemoryInfo> memory_ = made<OrtMemoryInfo>(
        api.ReleaseMemoryInfo, [](auto** out) { return api.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, out); });
    Owned<OrtSession> session_{nullptr, api.ReleaseSession};
};

}  // namespace

int main(int count, char** words) {
    return golden::main(count, words, [](const Artifact& artifact) -> Answer {
        auto session = std::make_shared<Session>(artifact);
        return [session](const Tensors& inputs) { return (*session)(inputs); };
    });
}
