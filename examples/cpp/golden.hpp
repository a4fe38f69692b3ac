// An artifact's golden vectors: rows with the reference's answers, and how far a program's own answers are off.
//
// The format (golden.json, golden.bin) and the metrics are those of the browser's page and of the Kotlin and Swift
// libraries; web/README.md describes them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <set>

#include "json.hpp"

struct Tensor {
    std::vector<int64_t> shape;
    std::string dtype;  // float32, int64, int32, int8, uint8, bool
    std::vector<char> data;

    size_t count() const {
        size_t product = 1;
        for (int64_t size : shape) product *= static_cast<size_t>(size);
        return product;
    }
};

inline size_t size_of(const std::string& dtype) {
    static const std::map<std::string, size_t> sizes{{"float32", 4}, {"int64", 8}, {"int32", 4},
                                                     {"int8", 1},    {"uint8", 1}, {"bool", 1}};
    auto found = sizes.find(dtype);
    if (found == sizes.end()) throw std::runtime_error("no golden vectors hold the type '" + dtype + "'");
    return found->second;
}

using Tensors = std::map<std::string, Tensor>;
// Answers one row: inputs by name in, outputs by name out.
using Answer = std::function<Tensors(const Tensors&)>;

// What manifest.json says of an artifact.
struct Artifact {
    std::string target;
    std::string entry;  // the path of the file that the runtime opens
    std::vector<std::string> inputs, outputs;  // in the model's order
    std::string picture;                       // the input that is one; empty where none is
    double low = 0, high = 1;                  // its values for the bytes 0 and 255
};

namespace golden {

inline std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read '" + path.string() + "'");
    return {std::istreambuf_iterator<char>(file), {}};
}

inline Artifact artifact(const std::filesystem::path& folder) {
    Json manifest = JsonReader::read(read(folder / "manifest.json"));
    Artifact found;
    found.target = manifest["target"].string;
    found.entry = (folder / manifest["entry"].string).string();
    for (const Json& input : manifest["inputs"].items) {
        found.inputs.push_back(input["name"].string);
        if (input["kind"].string == "image" && found.picture.empty()) {
            found.picture = input["name"].string;
            found.low = input["low"].value;
            found.high = input["high"].value;
        }
    }
    for (const Json& output : manifest["outputs"].items) found.outputs.push_back(output["name"].string);
    return found;
}

// An array of golden.bin; of an output with a step only each step-th value is there.
inline Tensor part(const Json& where, const std::string& binary) {
    Tensor found;
    for (const Json& size : where["shape"].items) found.shape.push_back(static_cast<int64_t>(size.value));
    found.dtype = where["dtype"].string;
    size_t step = static_cast<size_t>(where["step"].value), offset = static_cast<size_t>(where["offset"].value);
    size_t bytes = (found.count() + step - 1) / step * size_of(found.dtype);
    if (offset > binary.size() || bytes > binary.size() - offset) throw std::runtime_error("golden.bin is too short");
    found.data.assign(binary.begin() + offset, binary.begin() + offset + bytes);
    return found;
}

// Bytes [H, W, 3] as the model takes a picture: [1, 3, H, W], low + (high - low) * byte / 255.
inline Tensor pixels(const Tensor& image, const Artifact& artifact) {
    int64_t height = image.shape[0], width = image.shape[1];
    Tensor found{{1, 3, height, width}, "float32", std::vector<char>(image.count() * 4)};
    const float low = static_cast<float>(artifact.low), span = static_cast<float>(artifact.high - artifact.low);
    for (int64_t channel = 0; channel < 3; channel++) {
        for (int64_t pixel = 0; pixel < height * width; pixel++) {
            float byte = static_cast<unsigned char>(image.data[pixel * 3 + channel]);
            float value = low + span * (byte / 255.0f);
            std::memcpy(&found.data[(channel * height * width + pixel) * 4], &value, 4);
        }
    }
    return found;
}

inline double number(const Tensor& tensor, size_t index) {
    const char* at = tensor.data.data() + index * size_of(tensor.dtype);
    auto as = [at](auto value) {
        std::memcpy(&value, at, sizeof value);
        return static_cast<double>(value);
    };
    if (tensor.dtype == "float32") return as(float{});
    if (tensor.dtype == "int64") return as(int64_t{});
    if (tensor.dtype == "int32") return as(int32_t{});
    if (tensor.dtype == "int8") return as(int8_t{});
    return as(uint8_t{});
}

// Of a ranking: the share of the best possible sum of scores that the chosen places lack.
inline double lost_mass(const Tensor& scores, const Tensor& best, const Tensor& chosen) {
    auto mass = [&](const Tensor& places) {
        std::set<int64_t> known;
        for (size_t i = 0; i < places.count(); i++) known.insert(static_cast<int64_t>(number(places, i)));
        double sum = 0;
        for (int64_t place : known) {
            if (place >= 0 && static_cast<size_t>(place) < scores.count()) sum += number(scores, place);
        }
        return sum;
    };
    double possible = mass(best);
    return possible > 0 ? std::max(0.0, 1 - mass(chosen) / possible) : 0.0;
}

// How far an output is off; infinite where it is missing, of another shape or type, or not finite.
inline double error(const std::string& metric, const Json& expected, const Json& outputs, const Tensors& answers,
                    const std::string& name, const std::string& binary) {
    const double infinite = std::numeric_limits<double>::infinity();
    Tensor wanted = part(expected, binary);
    auto found = answers.find(name);
    if (found == answers.end() || found->second.shape != wanted.shape || found->second.dtype != wanted.dtype) return infinite;
    if (metric == "lost_mass") return lost_mass(part(outputs[expected["of"].string], binary), wanted, found->second);
    size_t step = static_cast<size_t>(expected["step"].value), kept = wanted.data.size() / size_of(wanted.dtype);
    double largest = 0, squares = 0, wrong = 0;
    for (size_t i = 0; i < kept; i++) {
        double off = std::abs(number(wanted, i) - number(found->second, i * step));
        if (!std::isfinite(off)) return infinite;
        largest = std::max(largest, off);
        squares += off * off;
        wrong += off != 0;
    }
    double values = static_cast<double>(std::max<size_t>(kept, 1));
    return metric == "rms" ? std::sqrt(squares / values) : metric == "wrong" ? wrong / values : largest;
}

// Ask each row, print the largest error of each output beside its limit, and return how many are beyond.
inline int compare(const Artifact& artifact, const std::filesystem::path& folder, const Answer& answer) {
    Json file = JsonReader::read(read(folder / "golden.json"));
    std::string binary = read(folder / file["binary"].string);
    const Json& limits = file["limits"][artifact.target];
    std::map<std::pair<std::string, std::string>, double> largest;
    for (const Json& row : file["cases"].items) {
        Tensors inputs;
        for (const auto& [name, where] : row["inputs"].fields) inputs[name] = part(where, binary);
        if (row["image"].kind != Json::null) inputs[artifact.picture] = pixels(part(row["image"], binary), artifact);
        Tensors answers = answer(inputs);
        const Json& expected = row["expected"];
        for (const auto& [name, where] : expected.fields) {
            for (const auto& [metric, _] : limits[name].fields) {
                double off = error(metric, where, expected, answers, name, binary);
                double& most = largest[{name, metric}];
                most = std::max(most, off);
            }
        }
    }
    int beyond = largest.empty();  // golden vectors that ask nothing prove nothing
    for (const auto& [key, most] : largest) {
        double limit = limits[key.first][key.second].value;
        beyond += !(most <= limit);
        std::printf("%-8s %-12s %-10s %.2g (limit %.2g)\n", most <= limit ? "passed" : "FAILED", key.first.c_str(),
                    key.second.c_str(), most, limit);
    }
    std::printf("%zu rows of %s: %s\n", file["cases"].items.size(), artifact.target.c_str(), beyond ? "FAILED" : "passed");
    return beyond;
}

// The whole of a program: `PROGRAM ARTIFACT GOLDEN`. Exit code 0 where all is within its limits, 1 where not, 2 for an error.
inline int main(int count, char** words, const std::function<Answer(const Artifact&)>& open) {
    if (count != 3) {
        std::fprintf(stderr, "usage: %s ARTIFACT GOLDEN\n", words[0]);
        return 2;
    }
    try {
        Artifact found = artifact(words[1]);
        return compare(found, words[2], open(found)) ? 1 : 0;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 2;
    }
}

}  // namespace golden
