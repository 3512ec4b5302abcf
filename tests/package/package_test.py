#!/usr/bin/env python3
"""Programs outside this tree, built in an empty folder against the installed package, tell models/tiny's answer.

    package_test.py SOURCE BUILD [--fetch]

They are examples/ and the programs in docs/api.md. With --fetch the library is built along from a clone, by
FetchContent, which takes as long as Doppler's own build.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

QUESTION, ANSWER = "What color is the sky?", "The color of the sky is blue."
source, build = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
failures = 0


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3000, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def check(what, got, expected):
    global failures
    good = expected in got
    failures += not good
    print(f"  {'ok   ' if good else 'WRONG'} {what}" + ("" if good else f": {got!r}"), flush=True)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", (source / "docs/api.md").read_text(), re.M | re.S)


def outside(folder, *options):
    """examples/ as somebody copied it, with the programs of docs/api.md beside them."""
    project = folder / "project"
    shutil.copytree(source / "examples", project)
    (project / "cpp/page.cpp").write_text(blocks("cpp")[0])
    (project / "c/page.c").write_text(blocks("c")[0])
    (project / "python/page.py").write_text(blocks("python")[0])
    with open(project / "CMakeLists.txt", "a") as lists:
        lists.write("add_executable(page cpp/page.cpp)\ntarget_link_libraries(page PRIVATE doppler::doppler)\n"
                    "add_executable(page_c c/page.c)\ntarget_link_libraries(page_c PRIVATE doppler::doppler)\n")
    run("cmake", "-S", project, "-B", folder / "out", "-G", "Ninja", *options)
    run("cmake", "--build", folder / "out", "--target", "chat", "chat_c", "page", "page_c")
    return project


def talk(folder, project, models, library):
    environment = {**os.environ, "DOPPLER_LIBRARY": str(library)}
    for kind, model in models.items():
        for program in ("chat", "chat_c"):
            check(f"{program} on {kind}", run(folder / "out" / program, model, QUESTION), ANSWER)
        for program in ("page", "page_c"):
            check(f"docs/api.md's {program} on {kind}", run(folder / "out" / program, model), ANSWER)
        check(f"chat.py on {kind}", run("python3", project / "python/chat.py", model, QUESTION, env=environment), ANSWER)
        check(f"docs/api.md's Python on {kind}", run("python3", project / "python/page.py", model, env=environment), ANSWER)
    wrong = subprocess.run([folder / "out/chat_c", folder / "nowhere"], capture_output=True, text=True)
    check("chat_c without a model says so", wrong.stderr, "there is no model here")
    check("and exits with the error's code", str(wrong.returncode), "3")


def main():
    with tempfile.TemporaryDirectory(prefix="doppler-package-") as scratch:
        folder = pathlib.Path(scratch)
        models = {"models/tiny": source / "models/tiny", "a GGUF of it": folder / "tiny.gguf"}
        run(build / "doppler", "convert", models["models/tiny"], models["a GGUF of it"])
        if "--fetch" in sys.argv:
            clone = folder / "clone"
            run("git", "clone", "-q", source, clone)
            project = outside(folder, f"-DDOPPLER_SOURCE={clone}", "-DCMAKE_BUILD_TYPE=Release", "-DDOPPLER_GPU=OFF",
                              "-DDOPPLER_PRECOMPILE=ON")
            talk(folder, project, models, next((folder / "out").rglob("libdoppler.so")))
            sys.exit(failures > 0)
        first, prefix = folder / "first", folder / "prefix"
        run("cmake", "--install", build, "--prefix", first)
        first.rename(prefix)  # an installed tree may be moved
        library = next(prefix.rglob("libdoppler.so"))
        project = outside(folder, f"-DCMAKE_PREFIX_PATH={prefix}")
        talk(folder, project, models, library)
        check("the installed program and model", run(prefix / "bin/doppler", "run", QUESTION, cwd=folder), ANSWER)
        if (build / "dawn/libwebgpu_wrapper.so").exists():
            loaded = subprocess.run([prefix / "bin/doppler", "devices"], capture_output=True, text=True, cwd=folder)
            check("the installed program finds Dawn", str("Dawn, the WebGPU library, is not here" in loaded.stderr), "False")
        environment = {**os.environ, "PKG_CONFIG_PATH": str(library.parent / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "doppler", env=environment).split()
        run("cc", "-std=c11", "-Wall", "-Werror", "-pedantic", source / "examples/c/chat.c", *flags, "-o", folder / "by_pc")
        run("c++", "-std=c++20", "-x", "c++", "-Wall", "-Werror", "-fsyntax-only", *flags, source / "include/doppler/doppler_c.h",
            env=environment)
        check("a C program by pkg-config", run(folder / "by_pc", models["models/tiny"], QUESTION,
                                               env={**os.environ, "LD_LIBRARY_PATH": str(library.parent)}), ANSWER)
        for name in ("share/man/man1/doppler.1", "share/bash-completion/completions/doppler", "share/doppler/families"):
            check(f"{name} is installed", str((prefix / name).exists()), "True")
        if shutil.which("bash"):
            words = run("bash", "-c", f"source {prefix}/share/bash-completion/completions/doppler; "
                        "COMP_WORDS=(doppler run --max) COMP_CWORD=2; _doppler; echo ${COMPREPLY[*]}; "
                        "COMP_WORDS=(doppler bench in) COMP_CWORD=2; _doppler; echo ${COMPREPLY[*]}")
            check("bash completes options", words, "--max-tokens")
            check("bash completes verbs of verbs", words, "inference")
    sys.exit(failures > 0)


main()
