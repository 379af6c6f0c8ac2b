"""inspect-ai with its provider for interfaces like OpenAI's, unmodified, against a live packing service.

    python qa/conformance/clients/inspect_client.py http://127.0.0.1:3000 --model NAME --folder SCRATCH

runs in an environment with `REQUIREMENTS` and nothing of Pliant. Each step, which is an evaluation, prints a line of JSON:
client, version, what it did, ok and detail. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import Tool, ToolFunction, tool
from inspect_ai.util import json_schema
from pydantic import BaseModel
from steps import arguments, take_steps

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {"inspect-ai": ("inspect-ai==0.3.285", "openai==3.57.0")}
"""The pinned requirements of each client."""
QUESTIONS = ("What is the capital of France?", "How is the weather in Rome?", "Name a colour.")

Check = Callable[[TaskState], bool]
"""Whether a sample went as it should."""


class City(BaseModel):
    """What an output is to be read as."""

    name: Literal["Paris", "Rome"]
    large: bool


@tool
def weather() -> Tool:
    async def execute(place: Literal["Paris", "Rome"]) -> str:
        """Look up the weather.

        Args:
            place: Name of the place.
        """
        return f"rain in {place}"

    return execute


class Inspector:
    """Evaluates tasks with a model of the service. `folder`: of the logs."""

    def __init__(self, model: str, folder: str) -> None:
        self._model, self._folder = f"openai-api/pliant/{model}", folder

    def evaluate(self, check: Check, solver: Any, **config: Any) -> str:
        """Run a task of all questions. Raises `AssertionError` unless all are answered, and pass the check."""

        @scorer(metrics=[accuracy()])
        def passes() -> Any:
            async def score(state: TaskState, target: Target) -> Score:
                return Score(value=check(state), answer=state.output.completion)

            return score

        samples = [Sample(input=question, target="") for question in QUESTIONS]
        task = Task(dataset=samples, solver=solver, scorer=passes(), config=GenerateConfig(**config))
        (log,) = evaluate(task, model=self._model, log_dir=self._folder, display="none", fail_on_error=True)
        assert log.status == "success", log.error and log.error.message
        value = log.results.scores[0].metrics["accuracy"].value
        shown = [sample.output.completion or str(sample.messages[-1].text) for sample in log.samples]
        assert value == 1, shown
        return f"{len(samples)} samples, such as {shown[0][:60]!r}"

    def logprobs(self) -> str:
        def check(state: TaskState) -> bool:
            tokens = state.output.choices[0].logprobs.content
            return bool(tokens) and all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in tokens)

        return self.evaluate(check, generate(), logprobs=True, top_logprobs=2, max_tokens=16, temperature=0)

    def tools(self) -> str:
        """The call is forced, its result goes back, and the model answers."""

        def check(state: TaskState) -> bool:
            results = [message.text for message in state.messages if message.role == "tool"]
            return bool(results) and all(text in ("rain in Paris", "rain in Rome") for text in results)

        solver = [use_tools(weather(), tool_choice=ToolFunction("weather")), generate(tool_calls="single")]
        return self.evaluate(check, solver, max_tokens=100, temperature=0)

    def schema(self) -> str:
        def check(state: TaskState) -> bool:
            City.model_validate(json.loads(state.output.completion))
            return True

        form = ResponseSchema(name="city", json_schema=json_schema(City), strict=True)
        return self.evaluate(check, generate(), response_schema=form, max_tokens=100, temperature=0)


def main() -> int:
    """Take all steps, and return the exit status."""
    given = arguments("model", "folder")
    os.environ |= {"PLIANT_BASE_URL": f"{given.url}/v1", "PLIANT_API_KEY": "none"}
    inspector = Inspector(given.model, given.folder)
    steps = {
        "a task with log-probabilities": inspector.logprobs,
        "a task with a tool": inspector.tools,
        "a task with a response schema": inspector.schema,
    }
    return take_steps("inspect-ai", steps)


if __name__ == "__main__":
    raise SystemExit(main())
