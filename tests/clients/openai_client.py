"""The openai SDK against a hadal server: chat, streams, scores, tools, errors. Argument: URL."""
import sys

import openai

QUESTION = ("Nora is 37 years old. Eli is 13 years older than Nora. "
            "How old will Eli be in 10 years?")
ANSWER = "37 + 13 = 50. 50 + 10 = 60.\n#### 60"
OFF = {"chat_template_kwargs": {"thinking": False}}
ASK = dict(model="tiny-v4", messages=[{"role": "user", "content": QUESTION}], temperature=0)
TOOL = {"type": "function", "function": {
    "name": "add", "description": "Adds two numbers",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}

client = openai.OpenAI(base_url=sys.argv[1], api_key="test-key", max_retries=0)


def chat():
    r = client.chat.completions.create(**ASK, extra_body=OFF)
    assert r.choices[0].message.content == ANSWER, r
    assert r.choices[0].finish_reason == "stop"
    assert (r.usage.prompt_tokens, r.usage.completion_tokens) == (34, 29)
    assert r.choices[0].message.tool_calls is None
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    r = client.chat.completions.create(**{**ASK, "messages": parts}, extra_body=OFF)
    assert r.choices[0].message.content == ANSWER


def reasoning():
    r = client.chat.completions.create(**ASK, reasoning_effort="high")
    m = r.choices[0].message
    assert m.content == "The answer is 60.\n#### 60", m
    assert m.reasoning_content == m.reasoning == "37 + 13 = 50. 50 + 10 = 60."
    assert r.usage.completion_tokens_details.reasoning_tokens == 24


def stream():
    text, reasons, usage = "", [], None
    for chunk in client.chat.completions.create(
            **ASK, stream=True, stream_options={"include_usage": True}, extra_body=OFF):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            reasons.append(chunk.choices[0].finish_reason)
        else:
            usage = chunk.usage
    assert text == ANSWER
    assert reasons[-1] == "stop" and not any(reasons[:-1])
    assert usage.completion_tokens == 29
    with client.chat.completions.stream(**ASK, extra_body=OFF) as events:
        final = events.get_final_completion()
    assert final.choices[0].message.content == ANSWER


def abort():
    s = client.chat.completions.create(
        **ASK, stream=True, max_tokens=4000, extra_body={**OFF, "ignore_eos": True})
    next(iter(s))
    s.close()


def logprobs():
    r = client.chat.completions.create(
        **ASK, logprobs=True, top_logprobs=3, n=2, max_tokens=4, extra_body=OFF)
    assert len(r.choices) == 2
    for choice in r.choices:
        assert len(choice.logprobs.content) == 4
        assert all(len(t.top_logprobs) == 3 for t in choice.logprobs.content)


def completions():
    r = client.completions.create(
        model="tiny-v4", prompt=["Question: 1", "Answer"], max_tokens=4, echo=True, logprobs=2)
    assert len(r.choices) == 2
    assert r.choices[0].text.startswith("Question: 1")
    assert r.choices[1].logprobs.token_logprobs[0] is None
    r = client.completions.create(model="tiny-v4", prompt=[[0, 5, 6], [0, 5]], max_tokens=2)
    assert (len(r.choices), r.usage.prompt_tokens) == (2, 5)
    text = "".join(c.choices[0].text for c in client.completions.create(
        model="tiny-v4", prompt="Question: 1", max_tokens=4, temperature=0, stream=True))
    whole = client.completions.create(
        model="tiny-v4", prompt="Question: 1", max_tokens=4, temperature=0).choices[0].text
    assert text == whole


def tools():
    r = client.chat.completions.create(**ASK, tools=[TOOL], max_tokens=50, extra_body=OFF)
    assert r.choices[0].finish_reason in ("stop", "length", "tool_calls")
    # The model knows no tools; the call that is forced on it comes back as one.
    r = client.chat.completions.create(
        **ASK, tools=[TOOL], max_tokens=30, extra_body=OFF,
        tool_choice={"type": "function", "function": {"name": "add"}})
    assert r.choices[0].message.tool_calls[0].function.name == "add"
    r = client.chat.completions.create(
        **ASK, tools=[TOOL], max_tokens=100, reasoning_effort="high", tool_choice={
            "type": "function", "function": {"name": "add"}})
    assert r.choices[0].message.reasoning, r
    assert r.choices[0].message.tool_calls[0].function.name == "add", r
    assert not r.choices[0].message.content
    history = ASK["messages"] + [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function",
             "function": {"name": "add", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"}]
    client.chat.completions.create(
        model="tiny-v4", messages=history, tools=[TOOL], max_tokens=5)


def models():
    assert [m.id for m in client.models.list()] == ["tiny-v4"]
    assert client.models.retrieve("tiny-v4").max_model_len == 4096


def errors():
    for error, more in [(openai.BadRequestError, {"temperature": -1}),
                        (openai.BadRequestError, {"max_tokens": 100000}),
                        (openai.NotFoundError, {"model": "other"})]:
        for stream in (False, True):
            try:
                client.chat.completions.create(**{**ASK, **more}, stream=stream)
            except error as e:
                assert e.body["message"]
            else:
                raise AssertionError(f"{more} was accepted")
    try:
        openai.OpenAI(base_url=sys.argv[1], api_key="wrong").models.list()
    except openai.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key was accepted")


for case in (chat, reasoning, stream, abort, logprobs, completions, tools, models, errors):
    case()
    print(f"openai {openai.__version__}: {case.__name__}")
