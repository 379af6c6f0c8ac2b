"""Shapes of an encoder in ONNX Runtime on a CPU: one file for all, with sizes fixed for each static shape.

An exported model is optimised for this processor, and its weights are stored once, as they are multiplied. ONNX Runtime
packs the weights of every product again in each session, and holds them twice. Packed into a file, all sessions of a
machine map the same pages. The file fits this processor and this version only; cache.py records both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.padding import OUTPUT, TOKENS, Batch
from pliant.errors import InputError

Call = Callable[[Batch], NDArray[np.float32]]
MODEL, WEIGHTS = "encoder.onnx", "encoder.bin"
FATAL = 4  # log level: errors are raised anyway, and warnings say that the file fits this hardware only


def optimise(exported: Path, target: Path) -> None:
    """Write `MODEL` and `WEIGHTS` into the folder `target`, replacing former ones. Sizes remain free."""
    for former in (MODEL, WEIGHTS):
        (target / former).unlink(missing_ok=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = FATAL
    options.optimized_model_filepath = str(target / MODEL)
    for name, value in {
        "session.optimized_model_external_initializers_file_name": WEIGHTS,
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        "session.save_external_prepacked_constant_initializers": "1",
    }.items():
        options.add_session_config_entry(name, value)
    onnxruntime.InferenceSession(str(exported), options, providers=["CPUExecutionProvider"])


EXACT = 1  # the arena grows by what is needed, not to the next power of two


class OnnxEngine:
    """Sessions over the files of one folder, whose digests were verified. Threads may call them at the same time.

    They share one memory arena. One arena each would keep the most memory that every shape ever used (700 MB for ten
    shapes of MiniLM up to 8 x 512); without any, fresh pages cost 40% of the time at 4 x 512.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self._path, self._threads = str(folder / MODEL), threads
        # Weak: a shape that is no longer loaded frees its session.
        self._sessions = WeakValueDictionary[Shape, onnxruntime.InferenceSession]()
        memory, kind = onnxruntime.OrtMemType.DEFAULT, onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
        exact = onnxruntime.OrtArenaCfg({"arena_extend_strategy": EXACT})
        onnxruntime.create_and_register_allocator(onnxruntime.OrtMemoryInfo("Cpu", kind, 0, memory), exact)

    def open(self, shape: Shape) -> Call:
        """Return the function that runs this shape, in a session of its own."""
        session = onnxruntime.InferenceSession(self._path, self._options(shape), providers=["CPUExecutionProvider"])
        self._sessions[shape] = session
        return _call(session, OUTPUT)

    def open_tokens(self, shape: Shape) -> Call:
        """Return the function that gives the embeddings [B, N, H] of all tokens, in the session of a shape that is open.

        Raises `InputError` for a file that was compiled without them.
        """
        session = self._sessions[shape]
        if TOKENS not in [node.name for node in session.get_outputs()]:
            raise InputError("unpooled", True, "false, as the encoder's file was compiled without embeddings of tokens")
        return _call(session, TOKENS)

    def _options(self, shape: Shape) -> onnxruntime.SessionOptions:
        """Return the session's options.

        The graph is optimised already; doing that again copies 10 MB a session out of the mapped file and is no faster.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = FATAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Spinning threads take time from other workers: a third more CPU time with two threads at 4 x 128.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_pattern = False  # It would reserve a block of memory for each shape.
        if not shape.dynamic:
            options.add_free_dimension_override_by_name("batch", shape.batch)
            options.add_free_dimension_override_by_name("length", shape.length)
        return options


def _call(session: onnxruntime.InferenceSession, output: str) -> Call:
    names = [node.name for node in session.get_inputs()]

    def call(batch: Batch) -> NDArray[np.float32]:
        array: NDArray[np.float32] = session.run([output], {name: batch[name] for name in names})[0]
        return array

    return call
