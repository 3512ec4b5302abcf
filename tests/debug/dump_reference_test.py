"""tools/dump_reference.py as far as it goes without torch: it compiles, and every stage it names is one that
src/debug/compare.cpp has a place for (a name that nobody knows would be left out of the comparison)."""
import pathlib
import re
import sys
import types
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import dump_reference  # noqa: E402


def thing(**parts):
    return types.SimpleNamespace(**parts)


class DumpReference(unittest.TestCase):
    def test_names_only_stages_that_a_comparison_knows(self):
        source = (ROOT / "src/debug/compare.cpp").read_text()
        order = re.search(r"kLayerOrder\[\] = \{(.*?)\};", source, re.S).group(1)
        known = set(re.findall(r'"(\w+)"', order))
        self.assertIn("attn_norm", known)
        named = [*dump_reference.LAYER_STAGES, *dump_reference.INPUT_STAGES, *dump_reference.HEAD_STAGES]
        self.assertEqual(len(named), len(set(named)))
        self.assertLessEqual(set(named), known)

    def test_takes_the_first_submodule_that_is_there(self):
        layer = thing(post_attention_layernorm="second", mlp=thing(up_proj="up"))
        stages = dump_reference.INPUT_STAGES
        self.assertEqual(dump_reference.submodule(layer, stages["attn_residual"]), "second")
        self.assertEqual(dump_reference.submodule(layer, ["mlp.up_proj"]), "up")
        self.assertIsNone(dump_reference.submodule(layer, stages["glu"]))

    def test_finds_the_layers_wherever_a_family_puts_them(self):
        text = thing(layers=[])
        places = [thing(model=text), thing(model=thing(language_model=text)), thing(language_model=thing(model=text))]
        for model in places:
            self.assertIs(dump_reference.decoder_of(model), text)
        with self.assertRaises(SystemExit):
            dump_reference.decoder_of(thing(model=thing(vision=text)))


if __name__ == "__main__":
    unittest.main()
