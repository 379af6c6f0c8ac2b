"""huggingface_hub's InferenceClient, unmodified, against a live packing service.

    python qa/conformance/clients/hub_client.py http://127.0.0.1:3000

runs in an environment with `REQUIREMENTS` and nothing of Pliant. Each step prints a line of JSON: client, version, what it
did, ok and detail. The exit status is 1 if a step failed. With HF_HUB_OFFLINE the client refuses every address, this
machine's too.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping
from typing import Any

from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from steps import record, take_steps, tool

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {"huggingface_hub": ("huggingface_hub==2.4.0", "numpy")}
"""The pinned requirements of each client."""
MESSAGES: Any = [{"role": "user", "content": "What is the capital of France?"}]
TOOLS: Any = [tool("capital", "The capital of a country.", country={"enum": ["France", "Italy"]})]
SCHEMA: Any = record(city={"enum": ["Paris", "Rome"]})


class Hub:
    """The client, with the name of the model that the service serves first."""

    def __init__(self, url: str) -> None:
        self._client = InferenceClient(base_url=f"{url.rstrip('/')}/v1", api_key="none", timeout=300)
        with urllib.request.urlopen(f"{url.rstrip('/')}/v1/models", timeout=60) as response:
            self._model = json.load(response)["data"][0]["id"]

    def chat(self, **fields: Any) -> Any:
        """Chat by name: without one the client sends "dummy", which is no model of the service."""
        fields = {"messages": MESSAGES, "max_tokens": 16, "temperature": 0, "model": self._model, **fields}
        return self._client.chat_completion(**fields)

    def stream(self) -> object:
        """The pieces make the text of the answer that comes whole, and the last one has its usage."""
        whole = self.chat()
        assert whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens > 0, whole
        pieces = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        assert text == whole.choices[0].message.content, (text, whole)
        assert pieces[-1].usage.total_tokens == whole.usage.total_tokens, pieces[-1]
        return text

    def logprobs(self) -> object:
        tokens = self.chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        assert tokens and all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens), tokens
        return f"{len(tokens)} tokens"

    def tools(self) -> object:
        answer = self.chat(tools=TOOLS, tool_choice="required", max_tokens=100)
        arguments = answer.choices[0].message.tool_calls[0].function.arguments
        assert json.loads(arguments)["country"] in ("France", "Italy"), answer
        return arguments

    def schema(self) -> object:
        form: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
        text = self.chat(response_format=form, max_tokens=60).choices[0].message.content
        assert json.loads(text)["city"] in ("Paris", "Rome"), text
        return text

    def errors(self) -> object:
        for name, value, status in (("temperature", 9, 400), ("model", "no-such-model", 404)):
            try:
                self.chat(**{name: value})
            except HfHubHTTPError as error:
                assert error.response.status_code == status and name in str(error), error
            else:
                raise AssertionError(f"{name} {value} is no error")
        return "a temperature of 9, another model"


def main(url: str) -> int:
    """Take all steps, and return the exit status."""
    hub = Hub(url)
    steps = {
        "chat_completion, whole and streamed with usage": hub.stream,
        "log-probabilities": hub.logprobs,
        "tools, required": hub.tools,
        "response_format json_schema": hub.schema,
        "errors": hub.errors,
    }
    return take_steps("huggingface_hub", steps)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
