// Converts JSON Schemas with llama.cpp's converter. Arguments are files; prints a line for each: an error, or nothing.

#include "json-schema-to-grammar.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

// Helpers of llama.cpp that the converter calls; their own file needs all of llama.cpp.

std::string string_join(const std::vector<std::string> & values, const std::string & separator) {
    std::string joined;
    for (size_t i = 0; i < values.size(); ++i) {
        joined += (i > 0 ? separator : "") + values[i];
    }
    return joined;
}

std::vector<std::string> string_split(const std::string & text, const std::string & delimiter) {
    std::vector<std::string> parts;
    size_t start = 0;
    for (size_t end; (end = text.find(delimiter, start)) != std::string::npos; start = end + delimiter.size()) {
        parts.push_back(text.substr(start, end - start));
    }
    parts.push_back(text.substr(start));
    return parts;
}

std::string string_repeat(const std::string & text, size_t count) {
    std::string repeated;
    for (size_t i = 0; i < count; ++i) {
        repeated += text;
    }
    return repeated;
}

extern "C" void ggml_abort(const char * file, int line, const char *, ...) {
    std::cerr << file << ":" << line << ": an assertion failed\n";
    std::abort();
}

int main(int argc, char ** argv) {
    for (int i = 1; i < argc; ++i) {
        std::ifstream file(argv[i]);
        std::stringstream text;
        text << file.rdbuf();
        std::string error;
        try {
            if (json_schema_to_grammar(common_json::parse(text.str()), true).find("root ::=") == std::string::npos) {
                error = "the grammar has no root";
            }
        } catch (const std::exception & caught) {
            error = caught.what();
        }
        for (char & letter : error) {
            letter = letter == '\n' ? ' ' : letter;
        }
        std::cout << error << "\n";
    }
}
