#!/usr/bin/env python3
"""doppler run --chat on a pseudo-terminal, as a person uses it.

    tests/cli/chat_terminal_test.py build/doppler [TEST ...]
"""
import json
import os
import pathlib
import pty
import re
import select
import signal
import sys
import tempfile
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = sys.argv.pop(1)
PATIENCE = 120  # seconds for anything to appear, on a machine that has other things to do
UP, TAB, CTRL_C, CTRL_D, CTRL_R, LEFT = "\033[A", "\t", "\003", "\004", "\022", "\033[D"
PROMPT = "> "


class Terminal:
    """The program on a terminal of its own; what it prints, without what only colors or moves the cursor."""

    def __init__(self, home, *arguments):
        self.child, self.screen = pty.fork()
        if self.child == 0:
            for name in ("LANG", "LC_ALL", "LC_CTYPE"):
                os.environ.pop(name, None)
            os.environ.update(HOME=str(home), XDG_STATE_HOME=str(home / "state"), TERM="xterm", COLUMNS="100")
            os.chdir(ROOT)
            os.execv(PROGRAM, [PROGRAM, "run", "--chat", "--backend", "cpu", *arguments])
        self.text = ""
        self.seen = 0
        self.pending = b""

    def read(self, seconds):
        """False at the end."""
        if not select.select([self.screen], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.screen, 65536)
        except OSError:
            return False
        self.pending += data
        text = self.pending.decode(errors="ignore")
        self.pending = b""
        self.text += re.sub(r"\033\[[0-9;?]*[A-Za-z]|\r", "", text)
        return bool(data)

    def wait_for(self, words):
        """Until the words appear behind those waited for before; what stands between."""
        end = time.monotonic() + PATIENCE
        while words not in self.text[self.seen:]:
            if not self.read(1) or time.monotonic() > end:
                raise AssertionError(f"waited for {words!r}, and there is:\n{self.text[self.seen:]}")
        at = self.text.index(words, self.seen)
        between = self.text[self.seen:at]
        self.seen = at + len(words)
        return between

    def wait_for_prompt(self, prompt=PROMPT):
        """The prompt appears before the terminal stops echoing by itself."""
        before = self.wait_for(prompt)
        while termios.tcgetattr(self.screen)[3] & termios.ICANON:
            time.sleep(0.01)
        return before

    def type(self, keys):
        os.write(self.screen, keys.encode())

    def line(self, text):
        self.type(text + "\r")

    def ask(self, question):
        """The answer; the next prompt stands there afterwards."""
        self.line(question)
        self.wait_for("\n")
        answer = self.wait_for("tokens of context left]")
        self.wait_for_prompt()
        return answer.rpartition("\n")[0]

    def leave(self):
        self.type(CTRL_D)
        while self.read(1):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


class ChatTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="doppler-test-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)

    def start(self, *arguments):
        terminal = Terminal(self.home, *arguments)
        self.addCleanup(os.close, terminal.screen)
        terminal.wait_for("/help lists commands")
        terminal.wait_for_prompt()
        return terminal

    def saved(self, terminal):
        terminal.line(f"/save {self.home}/talk.json")
        terminal.wait_for("Saved")
        terminal.wait_for_prompt()
        return [(m["role"], m["content"]) for m in json.loads((self.home / "talk.json").read_text())["messages"]]

    def test_history_outlives_the_program(self):
        first = self.start("--max-tokens", "20")
        self.assertEqual(first.ask("What color is the sky?"), "The color of the sky is blue.")
        self.assertEqual(first.leave(), 0)
        second = self.start("--max-tokens", "20")
        second.type(UP)
        second.wait_for("What color is the sky?")
        self.assertEqual(second.ask(""), "The color of the sky is blue.")
        second.type(CTRL_R + "color")
        second.wait_for("What color is the sky?")
        second.type("\r")
        second.wait_for("tokens of context left]")
        second.wait_for_prompt()
        self.assertEqual(second.leave(), 0)
        history = self.home / "state/doppler/chat_history"
        self.assertEqual(history.read_text(), "What color is the sky?\n")
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)

    def test_a_long_history_is_cut_to_its_end(self):
        history = self.home / "state/doppler/chat_history"
        history.parent.mkdir(parents=True)
        history.write_text("".join(f"line {i}\\nand \\\\more\n" for i in range(2001)))
        chat = self.start()
        chat.type(UP)
        chat.wait_for("line 2000\nand \\more")
        self.assertEqual(history.read_text().splitlines()[0], "line 1001\\nand \\\\more")
        self.assertEqual(len(history.read_text().splitlines()), 1000)
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)

    def test_what_is_typed_ahead_waits_for_the_prompt(self):
        chat = self.start("--max-tokens", "40")
        chat.line("Tell me a story.")
        chat.wait_for("Once upon a time")
        chat.line("What color is the sky?")
        self.assertNotIn("What color", chat.wait_for("tokens of context left]"))
        chat.wait_for(PROMPT + "What color is the sky?")
        chat.wait_for("tokens of context left]")

    def test_a_line_is_edited_in_characters_not_bytes(self):
        chat = self.start("--max-tokens", "3")
        chat.ask("Hallö ü猫!" + LEFT + "\177\177é")
        self.assertEqual(self.saved(chat)[0], ("user", "Hallö é!"))

    def test_tab_completes(self):
        (self.home / "conversation.json").write_text('[{"role": "user", "content": "hi"}]')
        chat = self.start()
        chat.type("/s" + TAB)
        chat.wait_for("/save   /stats  /system")
        chat.wait_for(PROMPT + "/s")
        chat.type("ta" + TAB + "\r")
        chat.wait_for("1024 of 1024 tokens left")
        chat.wait_for_prompt()
        chat.type("/lo" + TAB + str(self.home) + "/conv" + TAB + "\r")
        chat.wait_for("Loaded 1 turn")
        chat.wait_for("/regen answers")

    def test_several_lines_are_one_message(self):
        chat = self.start("--max-tokens", "3")
        chat.line('"""')
        chat.wait_for("… ")
        chat.line("Tell me")
        chat.wait_for("… ")
        chat.ask('a story."""')
        self.assertEqual(self.saved(chat)[0], ("user", "Tell me\na story."))

    def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(self):
        chat = self.start("--max-tokens", "900")
        chat.line("Tell me a story.")
        chat.wait_for("Once upon a time")
        chat.type(CTRL_C)
        chat.wait_for("stopped by Ctrl-C")
        chat.wait_for_prompt()
        messages = self.saved(chat)
        self.assertEqual([role for role, _ in messages], ["user", "assistant"])
        self.assertTrue(messages[1][1].startswith("Once upon a time"))
        chat.type("a line that nobody sends" + CTRL_C)  # at the prompt it takes back the line
        chat.wait_for("^C")
        chat.wait_for_prompt()
        self.assertEqual(self.saved(chat), messages)
        self.assertEqual(chat.leave(), 0)

    def test_regen_draws_another_answer(self):
        chat = self.start("--max-tokens", "30", "--temperature", "1", "--seed", "5")
        first = chat.ask("Tell me a story.")
        chat.line("/regen")
        chat.wait_for("with seed 6.")
        chat.wait_for("tokens of context left]")
        chat.wait_for_prompt()
        messages = self.saved(chat)
        self.assertEqual(len(messages), 2)
        self.assertNotEqual(messages[1][1], first)

    def fill(self, chat):
        """Asks until the context is full; the questions."""
        asked = []
        while "The context" not in chat.text:
            asked.append(f"What color is the sky, number {len(asked)}?")
            chat.line(asked[-1])
            chat.wait_for("?\n")
            while not chat.text[chat.seen:].endswith((PROMPT, "[y/N] ")):
                self.assertTrue(chat.read(1))
            if "[y/N] " in chat.text:
                chat.wait_for("to make room?")
            chat.wait_for_prompt("[y/N] " if "[y/N] " in chat.text else PROMPT)
        return asked

    def questions(self, chat):
        return [content for role, content in self.saved(chat) if role == "user"]

    def test_a_full_context_offers_to_drop_the_oldest_turns(self):
        chat = self.start("--context", "100", "--system", "Be kind.", "--max-tokens", "24")
        asked = self.fill(chat)
        self.assertIn("(not the system prompt)", chat.text)
        chat.line("y")
        chat.wait_for("tokens of context left]")
        chat.wait_for_prompt()
        messages = self.saved(chat)
        self.assertEqual(messages[0], ("system", "Be kind."))
        self.assertEqual(messages[-1][0], "assistant")
        kept = self.questions(chat)
        self.assertLess(len(kept), len(asked))
        self.assertEqual(kept, asked[-len(kept):])

    def test_a_full_context_keeps_everything_when_told_so(self):
        chat = self.start("--context", "100", "--max-tokens", "24")
        asked = self.fill(chat)
        cut = "so the answer ends here" in chat.text  # else the question did not fit
        chat.line("n")
        chat.wait_for_prompt()
        kept = self.questions(chat)
        self.assertEqual(kept, asked if cut else asked[:-1])
        chat.line("And tell me again: what color is the sky, and why is it?")
        chat.wait_for("The context is full")
        chat.wait_for_prompt("[y/N] ")
        chat.line("n")
        chat.wait_for("The question is taken back.")
        chat.wait_for_prompt()
        self.assertEqual(self.questions(chat), kept)

    def test_a_question_longer_than_the_context_is_refused(self):
        chat = self.start("--context", "60", "--max-tokens", "10")
        chat.ask("What color is the sky?")
        before = self.saved(chat)
        chat.line("And " + "the sea and " * 20 + "the sun?")
        chat.wait_for("the prompt is longer than the context")
        chat.wait_for_prompt()
        self.assertEqual(self.saved(chat), before)

    def test_commands_change_the_conversation(self):
        chat = self.start("--max-tokens", "20")
        chat.line("/system Be kind.")
        chat.wait_for("The system prompt is set.")
        chat.ask("What color is the sky?")
        talk = self.saved(chat)
        self.assertEqual(talk[0], ("system", "Be kind."))
        chat.line("/clear")
        chat.wait_for("A new conversation")
        self.assertEqual(self.saved(chat), talk[:1])
        (self.home / "old.json").write_text(json.dumps([{"role": r, "content": c} for r, c in talk]))
        chat.line("/load ~/old.json")
        chat.wait_for("Loaded 1 turn and a system prompt")
        chat.line("/model models/tiny")
        chat.wait_for("1 turn and a system prompt kept")
        chat.line("/model /nowhere")
        chat.wait_for("/nowhere")
        chat.wait_for_prompt()
        self.assertEqual(self.saved(chat), talk)
        chat.line("/clea")
        chat.wait_for("Did you mean /clear?")
        chat.line("/exit")
        self.assertEqual(chat.leave(), 0)


if __name__ == "__main__":
    signal.alarm(900)
    unittest.main()
