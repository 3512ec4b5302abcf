"""A question to a model, its answer as it comes:  chat.py MODEL [QUESTION]"""
import sys

import doppler

if len(sys.argv) < 2:
    sys.exit(__doc__)
question = sys.argv[2] if len(sys.argv) > 2 else "Tell me a story."
try:
    with doppler.Model(sys.argv[1]) as model, model.chat(backend="auto") as chat:
        chat.say(question, lambda piece: print(piece, end="", flush=True))
    print()
except doppler.Error as error:
    print(error, file=sys.stderr)
    sys.exit(error.code)
