#!/usr/bin/env python3
"""Records everything that users, peers, disks and tests see of a source tree, as text. Take a record before a change that
should only move code, and compare after it.

    tools/photograph.py take OUT [--seeds N]    run in the tree; builds `quorate` and the simulator's `hunt`
    tools/photograph.py compare BEFORE AFTER    prints the differences by section; exits with 1 if there are any

Sections: tests (names, from the source), mutants (names, rules, edits' files, recorded finds), vectors and transcripts
(checksums), gate (counts of the baseline), help (of every command), metrics and status (names reported by a running
node), seeds (fingerprint of the simulator's frames, writes and times).
"""
import difflib, hashlib, json, os, pathlib, re, shutil, subprocess, sys, tempfile, tomllib, urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tracked(*patterns):
    names = subprocess.check_output(["git", "ls-files", *patterns], cwd=ROOT, text=True)
    return sorted(ROOT / name for name in names.split("\n") if name)


def crate_of(path):
    """Returns the crate's folder name and the path within the crate, which a moved crate keeps."""
    parts = path.relative_to(ROOT).parts
    return parts[2:] if parts[0] == "crates" and len(parts) > 3 else parts


def tests():
    test = re.compile(r"#\[(?:tokio::)?test\](?:\s*#\[[^\]]*\])*\s*(?:async )?fn (\w+)")
    for path in tracked("*.rs"):
        for name in test.findall(path.read_text()):
            yield f"{crate_of(path)[0]} {path.stem} {name}"


def mutants():
    finds = tomllib.loads((ROOT / "docs/zoo.found.toml").read_text())
    for path in tracked("*/mutants/*.toml"):
        mutant = tomllib.loads(path.read_text())
        files = sorted({pathlib.Path(edit["file"]).name for edit in mutant.get("edit", [mutant]) if "file" in edit})
        found = finds.get(path.stem, {}).get("by", "not recorded")
        yield f"{path.stem} {' '.join(mutant.get('rules', []))} in {' '.join(files)}: {found}"


def sums():
    for path in tracked("*/testdata/*", "*/vectors/*", "fuzz/corpus/*"):
        yield f"{'/'.join(crate_of(path))} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def gate():
    return (ROOT / "crates/proof/trials/baseline.txt").read_text().splitlines()


def cargo(*words):
    subprocess.run(["cargo", *words], cwd=ROOT, check=True)


def program():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "debug/quorate"


def helps(words=()):
    text = subprocess.run([program(), *words, "--help"], capture_output=True, text=True).stdout
    yield f"$ quorate {' '.join(words)}"
    yield from text.splitlines()
    commands = re.search(r"^Commands:\n((?:  .*\n|\n)*)", text, re.M)
    for name in re.findall(r"^  (\w[\w-]*)", commands[1] if commands else "", re.M):
        if name != "help":
            yield from helps((*words, name))


def keys(value, path=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from keys(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, path + "[]")
    else:
        yield path


def node():
    """Returns the names in the documents of a newly founded node."""
    folder = tempfile.mkdtemp()
    ports = [f"--{port}=127.0.0.1:0" for port in ("client", "peer", "admin", "stream")]
    process = subprocess.Popen([program(), "start", "--data", f"{folder}/n", *ports], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        admin = re.search(r"admin=(\S+)", process.stdout.readline())[1]
        read = lambda path: urllib.request.urlopen(f"http://{admin}{path}", timeout=10).read().decode()
        status, metrics = json.loads(read("/status")), read("/metrics")
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)
    return sorted(set(keys(status))), sorted(line for line in metrics.splitlines() if line.startswith("# "))


def seeds(count):
    words = ["run", "--quiet", "--release", "--example", "hunt", "--", "1", str(count)]
    return subprocess.check_output(["cargo", *words], cwd=ROOT, text=True).splitlines()


def take(out, count):
    cargo("build", "--quiet", "--bin", "quorate", "--bin", "quorate-tools")
    status, metrics = node()
    sections = {"tests": sorted(tests()), "mutants": sorted(mutants()), "vectors": sorted(sums()), "gate": gate(), "help": list(helps()), "metrics": metrics, "status": status}
    if count:
        sections["seeds"] = seeds(count)
    pathlib.Path(out).write_text(json.dumps({name: list(lines) for name, lines in sections.items()}, indent=1))
    for name, lines in json.loads(pathlib.Path(out).read_text()).items():
        print(f"{name:8} {len(lines):6} lines {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}")


def compare(before, after):
    before, after = (json.loads(pathlib.Path(name).read_text()) for name in (before, after))
    changed = False
    for name in sorted(before.keys() | after.keys()):
        lines = list(difflib.unified_diff(before.get(name, []), after.get(name, []), lineterm="", n=0))[2:]
        changed |= bool(lines)
        print(f"{name}: {'equal' if not lines else f'{len(lines)} lines of difference'}", *lines, sep="\n  ")
    sys.exit(changed)


match sys.argv[1:]:
    case ["take", out]:
        take(out, 200)
    case ["take", out, "--seeds", count]:
        take(out, int(count))
    case ["compare", before, after]:
        compare(before, after)
    case _:
        sys.exit(__doc__)
