"""Optimises an exported ONNX model for this processor, and stores its weights once, as they are multiplied.

ONNX Runtime packs the weights of every product again in each session, and holds them twice. Packed into a file, all
sessions of a machine map the same pages. The file fits this processor and this version only; cache.py records both.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime

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
