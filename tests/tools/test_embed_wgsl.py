"""Without these, a kernel could lose code with its comments, or be looked up under another name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import embed_wgsl


def test_spaces_that_count_stay():
    text = "let a = b - -c;\nif (a < b && c > (d)) { return ${T} (x) + ${N} u; }\n#if A == B\n"
    assert embed_wgsl.minify(text) == ("let a=b - -c;\nif(a < b&&c >(d)){return ${T} (x)+ ${N} u;}\n#if A == B\n")


def test_comments_go_and_code_stays():
    text = "// head /* not a block\n  fn a() {} // tail\n/* c /* nested */ e\n */ const x = 1 / 2 * 3;\n"
    assert embed_wgsl.minify(text) == "fn a(){}\nconst x=1 / 2*3;\n"


def test_directives_stay_on_lines_of_their_own():
    assert embed_wgsl.minify("  #if F16\n\tenable f16;\n  #endif // F16\n") == "#if F16\nenable f16;\n#endif\n"


def test_names_are_relative_to_the_operators():
    runtime = Path("/r")
    assert embed_wgsl.source_name(Path("/r/operators/matmul/gemv.wgsl"), runtime) == "matmul/gemv.wgsl"
    assert embed_wgsl.source_name(Path("/r/webgpu/clear.wgsl"), runtime) == "webgpu/clear.wgsl"
