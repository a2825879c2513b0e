"""Compiles llama.cpp's converter of JSON Schemas to grammars, from the source distribution of llama-cpp-python.

The converter is a few C++ files, without a model and without the rest of llama.cpp.
"""

import pathlib
import shutil
import subprocess
import sys
import tarfile

PACKAGE = "llama-cpp-python==0.3.36"
SOURCES = ["json-schema-to-grammar.cpp", "json-schema.cpp", "json.cpp", "trie.cpp", "unicode.cpp"]
PARTS = ["/vendor/llama.cpp/" + part for part in ("common/", "include/", "src/", "ggml/include/", "vendor/nlohmann/")]

home = pathlib.Path(__file__).parent
source = home / "source"
# May be of another version.
shutil.rmtree(source, ignore_errors=True)
download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
download += ["--no-binary", "llama-cpp-python", "--retries", "1", "--timeout", "20", "--dest", str(source), PACKAGE]
subprocess.run(download, check=True)
[archive] = source.glob("*.tar.gz")
with tarfile.open(archive) as packed:
    wanted = [one for one in packed.getmembers() if any(part in one.name for part in PARTS)]
    packed.extractall(source, members=wanted, filter="data")
archive.unlink()
[root] = source.glob("*/vendor/llama.cpp")
compile_ = ["c++", "-std=c++17", "-O1", "-o", str(home / "converter"), str(home / "converter.cpp")]
compile_ += [f"-I{root / part}" for part in ("common", "include", "src", "ggml/include", "vendor")]
compile_ += [str(root / "common" / name) for name in SOURCES]
subprocess.run(compile_, check=True)
