"""Doppler's C API for Python, with nothing but ctypes.

    with doppler.Model("model.gguf") as model, model.chat(backend="auto") as chat:
        chat.say("Tell me a story.", lambda piece: print(piece, end="", flush=True))

DOPPLER_LIBRARY names libdoppler.so where the system's loader does not find it.
"""
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint64, c_void_p

ON_PIECE = ctypes.CFUNCTYPE(c_int, POINTER(ctypes.c_char), c_size_t, c_void_p)


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("backend", c_char_p), ("device", c_int32), ("context", c_int32), ("threads", c_int32),
                ("self_test", c_int32), ("gpu_memory", c_uint64), ("verify", c_int32)]


class AnswerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("max_tokens", c_int32), ("temperature", c_float), ("top_k", c_int32),
                ("top_p", c_float), ("min_p", c_float), ("repeat_penalty", c_float), ("has_seed", c_int32),
                ("seed", c_uint64), ("stop", POINTER(c_char_p)), ("stop_count", c_size_t)]


def _load():
    library = ctypes.CDLL(os.environ.get("DOPPLER_LIBRARY", "libdoppler.so.0"))
    error = POINTER(c_void_p)
    signatures = {
        "doppler_version": (c_char_p,),
        "doppler_error_code": (c_int, c_void_p),
        "doppler_error_message": (c_char_p, c_void_p),
        "doppler_error_what": (c_char_p, c_void_p),
        "doppler_error_where": (c_char_p, c_void_p),
        "doppler_error_todo": (c_char_p, c_void_p),
        "doppler_error_free": (None, c_void_p),
        "doppler_model_open": (c_int, c_char_p, POINTER(c_void_p), error),
        "doppler_model_close": (None, c_void_p),
        "doppler_chat_open": (c_int, c_void_p, POINTER(Options), POINTER(c_void_p), error),
        "doppler_chat_close": (None, c_void_p),
        "doppler_chat_set_system": (c_int, c_void_p, c_char_p, error),
        "doppler_chat_clear": (c_int, c_void_p, error),
        "doppler_chat_say": (c_int, c_void_p, c_char_p, POINTER(AnswerOptions), ON_PIECE, c_void_p, POINTER(c_void_p), error),
        "doppler_reply_text": (c_char_p, c_void_p),
        "doppler_reply_token_count": (c_size_t, c_void_p),
        "doppler_reply_answer_ms": (c_double, c_void_p),
        "doppler_reply_free": (None, c_void_p),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()


class Error(Exception):
    def __init__(self, error):
        self.code = _library.doppler_error_code(error)
        self.what, self.where, self.todo = (
            getattr(_library, f"doppler_error_{field}")(error).decode() for field in ("what", "where", "todo"))
        super().__init__(_library.doppler_error_message(error).decode())
        _library.doppler_error_free(error)


def _call(function, *arguments):
    error = c_void_p()
    if function(*arguments, byref(error)) != 0:
        raise Error(error)


class _Handle:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Model(_Handle):
    def __init__(self, path):
        self._handle = c_void_p()
        _call(_library.doppler_model_open, os.fsencode(path), byref(self._handle))

    def chat(self, backend="auto", context=0, threads=0):
        return Chat(self, Options(ctypes.sizeof(Options), backend.encode(), -1, context, threads, 1, 0, 1))

    def close(self):
        _library.doppler_model_close(self._handle)


class Chat(_Handle):
    def __init__(self, model, options):
        self._handle = c_void_p()
        _call(_library.doppler_chat_open, model._handle, byref(options), byref(self._handle))

    def system(self, text):
        _call(_library.doppler_chat_set_system, self._handle, text.encode())

    def say(self, text, on_piece=None, max_tokens=512, temperature=0.0, seed=None):
        """Returns the answer. on_piece gets its text as it comes, and stops it by returning False."""
        thrown = []

        def take(piece, length, _):
            try:
                return 0 if on_piece and on_piece(piece[:length].decode()) is False else 1
            except BaseException as exception:  # nothing may leave through C
                thrown.append(exception)
                return 0

        options = AnswerOptions(ctypes.sizeof(AnswerOptions), max_tokens, temperature, -1, -1, -1, -1, seed is not None,
                                seed or 0, None, 0)
        reply = c_void_p()
        _call(_library.doppler_chat_say, self._handle, text.encode(), byref(options), ON_PIECE(take), None, byref(reply))
        answer = _library.doppler_reply_text(reply).decode()
        _library.doppler_reply_free(reply)
        if thrown:
            raise thrown[0]
        return answer

    def close(self):
        _library.doppler_chat_close(self._handle)
