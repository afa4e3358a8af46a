"""Model lists, token counts and embeddings, in each dialect's own shape."""

from typing import Any

from dragoman.demo.model import demo_embedding

CREATED = 1_767_225_600  # a fixed day: scripted providers do not know the time
_DAY = "2026-01-01T00:00:00Z"


def list_models(dialect: str, models: tuple[str, ...]) -> Any:
    match dialect:
        case "anthropic":
            data: list[dict[str, Any]] = [
                {"type": "model", "id": m, "display_name": m, "created_at": _DAY} for m in models
            ]
            ends = {"first_id": models[0] if models else None, "last_id": models[-1] if models else None}
            return {"data": data, "has_more": False, **ends}
        case "gemini":
            methods = ["generateContent", "countTokens", "embedContent"]
            return {
                "models": [
                    {
                        "name": f"models/{m}",
                        "displayName": m,
                        "version": "1",
                        "inputTokenLimit": 1_048_576,
                        "outputTokenLimit": 65_536,
                        "supportedGenerationMethods": methods,
                    }
                    for m in models
                ]
            }
        case "ollama":
            details = {"format": "gguf", "family": "demo", "parameter_size": "1B", "quantization_level": "Q4_0"}
            known: dict[str, Any] = {"modified_at": _DAY, "size": 1, "digest": "0" * 64, "details": details}
            return {"models": [{"name": m, "model": m, **known} for m in models]}
        case _:
            data = [{"id": m, "object": "model", "created": CREATED, "owned_by": "scripted"} for m in models]
            return {"object": "list", "data": data}


def show_model(model: str) -> Any:
    """Ollama's /api/show."""
    details = {"format": "gguf", "family": "demo", "parameter_size": "1B", "quantization_level": "Q4_0"}
    return {
        "details": details,
        "model_info": {"general.architecture": "demo", "demo.context_length": 131_072},
        "capabilities": ["completion", "tools", "vision", "thinking"],
        "modelfile": f"FROM {model}",
        "template": "{{ .Prompt }}",
        "modified_at": _DAY,
    }


def count_body(dialect: str, count: int) -> Any:
    match dialect:
        case "gemini":
            return {"totalTokens": count}
        case "openai_responses":
            return {"object": "response.input_tokens", "input_tokens": count}
        case _:
            return {"input_tokens": count}


def embed(dialect: str, path: str, body: dict[str, Any]) -> Any:
    """Vectors for whatever was asked, eight numbers each unless more are wanted."""
    match dialect:
        case "gemini":
            asked = body["requests"] if path.endswith(":batchEmbedContents") else [body]
            made = [{"values": list(demo_embedding(_gemini_text(item), _size(item)))} for item in asked]
            return {"embeddings": made} if path.endswith(":batchEmbedContents") else {"embedding": made[0]}
        case "ollama":
            texts = _texts(body.get("input") if "input" in body else body.get("prompt", ""))
            vectors = [list(demo_embedding(text, _size(body))) for text in texts]
            if path.endswith("/embeddings"):
                return {"embedding": vectors[0]}
            return {"model": body.get("model"), "embeddings": vectors, "prompt_eval_count": _count(texts)}
        case _:
            texts = _texts(body.get("input"))
            data = [
                {"object": "embedding", "index": i, "embedding": list(demo_embedding(text, _size(body)))}
                for i, text in enumerate(texts)
            ]
            usage = {"prompt_tokens": _count(texts), "total_tokens": _count(texts)}
            return {"object": "list", "data": data, "model": body.get("model"), "usage": usage}


def _texts(asked: object) -> list[str]:
    items = asked if isinstance(asked, list) else [asked]
    if items and all(isinstance(item, int) for item in items):  # one text as token numbers
        return [str(items)]
    return [str(item) for item in items]


def _gemini_text(item: dict[str, Any]) -> str:
    parts = (item.get("content") or {}).get("parts") or ()
    return " ".join(str(part.get("text", "")) for part in parts)


def _size(body: dict[str, Any]) -> int:
    wanted = body.get("dimensions") or body.get("outputDimensionality")
    return wanted if isinstance(wanted, int) and 0 < wanted <= 4096 else 8


def _count(texts: list[str]) -> int:
    return sum(len(text.split()) for text in texts)
