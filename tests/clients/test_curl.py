"""curl, and what it shows of the protocol."""

import json
import os
import subprocess

from conftest import fetch

URL = os.environ["GATEWAY_URL"]
ADMIN = os.environ["ADMIN_URL"]


def curl(*arguments):
    command = ["curl", "-sS", "--max-time", "30", *arguments]
    # Not as text, which would change line ends.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()


def body(model, **more):
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi"}], **more})


def post(path, text, *arguments):
    return curl(URL + path, "-H", "content-type: application/json", "-d", text, *arguments)


def test_whole_answer(model):
    answer = json.loads(post("/v1/chat/completions", body(model)))
    assert answer["object"] == "chat.completion"


def test_stream_ends_with_done(model):
    text = post("/v1/chat/completions", body(model, stream=True), "-N", "-i")
    assert "content-type: text/event-stream" in text.lower()
    assert text.endswith("data: [DONE]\n\n")


def test_http2_without_tls(model):
    text = post("/v1/chat/completions", body(model), "--http2-prior-knowledge", "-i")
    assert text.startswith("HTTP/2 200")


def test_large_body_asks_to_continue_first(model, tmp_path):
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"model": model, "prompt": "word " * 20_000, "max_tokens": 4}))
    arguments = ("-H", "content-type: application/json", "-H", "expect: 100-continue")
    text = curl(URL + "/v1/completions", *arguments, "--data-binary", f"@{file}", "-i")
    assert "100 Continue" in text.splitlines()[0]
    assert json.loads(text.split("\r\n\r\n")[-1])["usage"]["completion_tokens"] == 4


def test_broken_json_is_a_bad_request(model):
    text = post("/v1/chat/completions", body(model)[:-1], "-i")
    assert text.startswith("HTTP/1.1 400")
    error = json.loads(text.split("\r\n\r\n")[-1])["error"]
    assert error["type"] and error["message"]


def test_answer_names_its_endpoint(model):
    text = post("/v1/chat/completions", body(model), "-i")
    fields = dict(line.split(": ", 1) for line in text.split("\r\n\r\n")[0].splitlines()[1:])
    endpoint = {name.lower(): value for name, value in fields.items()}["x-inference-gateway-endpoint"]
    assert f"http://{endpoint}" in os.environ["ENGINE_URLS"].split(",")


def test_routes_beside_chat(model):
    answer = json.loads(post("/tokenize", json.dumps({"model": model, "prompt": "Hello there"})))
    assert answer["count"] > 0
    documents = {"model": model, "query": "a", "documents": ["b", "c"]}
    answer = json.loads(post("/v1/rerank", json.dumps(documents)))
    assert len(answer["results"]) == 2


def test_multipart_form(model, tmp_path):
    file = tmp_path / "speech.wav"
    file.write_bytes(b"RIFF" + bytes(2000))
    answer = curl(URL + "/v1/audio/transcriptions", "-F", f"model={model}", "-F", f"file=@{file}")
    assert "text" in json.loads(answer)


def test_operators_can_look(model):
    post("/v1/chat/completions", body(model))
    metrics = fetch(ADMIN + "/metrics")
    assert "inference_gateway_picks_total{" in metrics
    assert "inference_objective_request_total{" in metrics
    status = json.loads(fetch(ADMIN + "/status.json"))
    assert len(status["pools"][0]["endpoints"]) == 2
    for path in ("/livez", "/readyz", "/healthz"):
        fetch(ADMIN + path)
    explained = curl(ADMIN + "/debug/explain", "-d", body(model))
    assert json.loads(explained)
