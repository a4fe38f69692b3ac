// JSON as manifest.json and golden.json have it, into values. A file that is none throws std::runtime_error.
#pragma once

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct Json {
    enum Kind { null, boolean, number, text, list, object } kind = null;
    double value = 0;  // of a number; 1 or 0 of a boolean
    std::string string;
    std::vector<Json> items;
    std::map<std::string, Json> fields;

    const Json& operator[](const std::string& name) const {
        auto found = fields.find(name);
        if (found == fields.end()) throw std::runtime_error("JSON: there is no '" + name + "'");
        return found->second;
    }
    bool has(const std::string& name) const { return fields.count(name) > 0; }
};

class JsonReader {
  public:
    static Json read(std::string_view text) {
        JsonReader reader(text);
        Json found = reader.value();
        reader.skip();
        if (reader.at_ != text.size()) reader.fail();
        return found;
    }

  private:
    explicit JsonReader(std::string_view text) : text_(text) {}

    Json value() {
        Json found;
        switch (peek()) {
            case '{':
                found.kind = Json::object;
                sequence('}', [&] {
                    peek();
                    std::string name = string();
                    expect(':');
                    found.fields[name] = value();
                });
                return found;
            case '[':
                found.kind = Json::list;
                sequence(']', [&] { found.items.push_back(value()); });
                return found;
            case '"':
                found.kind = Json::text;
                found.string = string();
                return found;
            case 't':
            case 'f':
                found.kind = Json::boolean;
                found.value = text_[at_] == 't';
                word(text_[at_] == 't' ? "true" : "false");
                return found;
            case 'n':
                word("null");
                return found;
            default: return numeral();
        }
    }

    Json numeral() {
        size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
        std::string digits(text_.substr(at_, end == std::string_view::npos ? end : end - at_));
        char* stop = nullptr;
        Json found;
        found.kind = Json::number;
        found.value = std::strtod(digits.c_str(), &stop);
        if (digits.empty() || *stop) fail();
        at_ += digits.size();
        return found;
    }

    template <class Item>
    void sequence(char close, Item item) {
        at_++;
        if (peek() == close) {
            at_++;
            return;
        }
        for (;;) {
            item();
            if (peek() == close) {
                at_++;
                return;
            }
            expect(',');
        }
    }

    std::string string() {
        expect('"');
        std::string found;
        while (at_ < text_.size() && text_[at_] != '"') {
            char c = text_[at_++];
            if (c != '\\') {
                found += c;
            } else if (at_ < text_.size()) {
                c = text_[at_++];
                if (c == 'u') {  // names and paths here are ASCII: anything else is kept as a question mark
                    if (at_ + 4 > text_.size()) fail();
                    int code = std::stoi(std::string(text_.substr(at_, 4)), nullptr, 16);
                    found += code < 128 ? static_cast<char>(code) : '?';
                    at_ += 4;
                } else {
                    found += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
                }
            }
        }
        expect('"');
        return found;
    }

    void word(std::string_view expected) {
        if (text_.substr(at_, expected.size()) != expected) fail();
        at_ += expected.size();
    }

    char peek() {
        skip();
        if (at_ >= text_.size()) fail();
        return text_[at_];
    }

    void expect(char c) {
        if (peek() != c) fail();
        at_++;
    }

    void skip() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) at_++;
    }

    [[noreturn]] void fail() const { throw std::runtime_error("JSON: unexpected end or letter at " + std::to_string(at_)); }

    std::string_view text_;
    size_t at_ = 0;
};
