"""The anthropic SDK against a hadal server: messages, events, tools, errors. Argument: its URL."""
import sys

import anthropic

QUESTION = ("Nora is 37 years old. Eli is 13 years older than Nora. "
            "How old will Eli be in 10 years?")
ANSWER = "37 + 13 = 50. 50 + 10 = 60.\n#### 60"
ASK = dict(model="tiny-v4", max_tokens=1500, messages=[{"role": "user", "content": QUESTION}],
           extra_body={"temperature": 0})
OFF = {"thinking": {"type": "disabled"}}
ON = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
TOOL = {"name": "add", "description": "Adds", "input_schema": {
    "type": "object", "properties": {"a": {"type": "number"}}}}

client = anthropic.Anthropic(
    base_url=sys.argv[1].removesuffix("/v1"), api_key="test-key", max_retries=0)


def message():
    m = client.messages.create(**ASK, **OFF)
    assert [b.type for b in m.content] == ["text"], m
    assert m.content[0].text == ANSWER
    assert m.stop_reason == "end_turn"
    assert m.usage.input_tokens + m.usage.cache_read_input_tokens == 34
    assert m.usage.output_tokens == 29


def thinking():
    m = client.messages.create(**ASK, **ON)
    assert [b.type for b in m.content] == ["thinking", "text"], m
    assert m.content[0].thinking == "37 + 13 = 50. 50 + 10 = 60."
    # The whole message goes back, as clients send it.
    more = ASK["messages"] + [{"role": "assistant", "content": m.content},
                              {"role": "user", "content": "Thanks."}]
    client.messages.create(**{**ASK, "messages": more, "max_tokens": 5}, **OFF)


def stream():
    for switch, types in ((OFF, ["text"]), (ON, ["thinking", "text"])):
        with client.messages.stream(**ASK, **switch) as events:
            text = "".join(events.text_stream)
            final = events.get_final_message()
        assert [b.type for b in final.content] == types
        assert final.content[-1].text == text
        assert final.stop_reason == "end_turn"
    assert "60" in text


def stop():
    m = client.messages.create(**ASK, **OFF, stop_sequences=[" 10 = 6"])
    assert (m.stop_reason, m.stop_sequence) == ("stop_sequence", " 10 = 6")


def tools():
    forced = client.messages.create(
        **{**ASK, "max_tokens": 30}, **OFF, tools=[TOOL],
        tool_choice={"type": "tool", "name": "add"})
    assert forced.content[0].type == "tool_use" and forced.content[0].name == "add"
    history = ASK["messages"] + [
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "1"}]}]
    client.messages.create(**{**ASK, "messages": history, "max_tokens": 5}, tools=[TOOL])


def count():
    n = client.messages.count_tokens(
        model="tiny-v4", messages=ASK["messages"], thinking={"type": "disabled"}).input_tokens
    assert n == 34


def errors():
    for error, more in [(anthropic.BadRequestError, {"max_tokens": 5000}),
                        (anthropic.NotFoundError, {"model": "other"})]:
        try:
            client.messages.create(**{**ASK, **more})
        except error as e:
            assert e.body["type"] == "error"
        else:
            raise AssertionError(f"{more} was accepted")


for case in (message, thinking, stream, stop, tools, count, errors):
    case()
    print(f"anthropic {anthropic.__version__}: {case.__name__}")
