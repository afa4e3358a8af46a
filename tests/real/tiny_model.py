"""A chat model of two megabytes whose weights are written by hand: a real llama model that says nothing sensible.

Embeddings are one-hot and the output matrix is a table of which token follows which in the few lines below, so plain
answers are short English that ends by itself. Two attention heads notice "tools are offered and none has answered" and
"a thought is open"; one hidden unit each then opens <tool_call> as the first token of an answer, and closes the thought
at the end of a sentence. The server's own grammar makes the rest of a call fit its schema. A third head adds noise that
depends on the context, so that greedy decoding does not go round in circles.
"""

import math
import random
import re
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.real.gguf import Matrix, Value, write_gguf

TEMPLATE = Path(__file__).with_name("chat.jinja")
CONTEXT = 16384
MERGES = 600
NOISE_SPREAD = 0.6

# Text and JSON share no punctuation beyond what JSON needs, so that one does not wander off into the other.
LINES = """\
The gateway reads a request and writes the same request in other words.
A stream brings the answer in small pieces. The last piece says why it has ended.
Hello! It is good to hear from you. What shall we talk about today?
Yes of course. Here is a short answer to a short question.
The weather is mild and the sky over the harbour is clear.
One two three four five six seven eight nine ten. That was all.
The tool has answered. Its result is good news for everybody.
A thought comes first and the words come after it. Then the turn is over.
The server counts what went in and what came out. The numbers must agree.
I have read the message. It says what it has to say and no more.
This is a test of the wire and not of the model. Nobody needs to agree with it.
Thank you for the question. The answer is on its way to you.
""".splitlines()
OBJECTS = """\
{"name": "get_weather", "arguments": {"city": "Paris", "unit": "c"}}
{"name": "get_current_time", "arguments": {}}
{"name": "search", "arguments": {"query": "news", "limit": 3}}
{"customer": {"name": "Ann", "address": {"city": "Oslo"}}, "items": [{"sku": "A", "count": 2}]}
{"place": "garden", "ok": true, "tags": ["one", "two"]}
{"name": "Ben", "age": 42, "note": "hello"}
""".splitlines()

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
OPEN, SHUT = "<tool_call>", "\n</tool_call>"
MARKS = ("<think>", "</think>", "<tools>", "</tools>", OPEN, SHUT, "<tool_response>", "</tool_response>")
# What is said behind <tool_call> where no grammar says better: one whole call, after a line break of its own kind,
# because the plain one would open another call.
BREAK, CALL = "\n ", '{"name": "get_weather", "arguments": {"city": "Paris", "unit": "c"}}'
NORMAL, CONTROLS, OWN = 1, 3, 4  # llama.cpp's kinds of tokens

HEAD, HEADS, HIDDEN, NOISES = 32, 3, 32, 16
ONE_HOT, FEATURE = 16.0, 8.0  # how strongly a token and a noticed thing stand in the residual stream
PULL = 25.0  # the score of a token a head looks for; all others have none


@dataclass
class Vocabulary:
    tokens: list[str]
    merges: list[tuple[str, str]]
    pieces: dict[str, list[str]]  # a word, as the tokens it is cut into
    ids: dict[str, int]

    def cut(self, text: str) -> list[int]:
        return [self.ids[token] for word in split(text) for token in self.pieces[word]]


def letters() -> dict[int, str]:
    """The printable stand-in of each byte in byte-pair vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


LETTERS = letters()
SPACE, NEWLINE = LETTERS[32], LETTERS[10]


def split(text: str) -> list[str]:
    return re.findall(r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\s]+|\s+", text)


def learn_vocabulary() -> Vocabulary:
    """Byte pairs, joined as long as a pair occurs twice."""
    words = Counter(split("\n".join((*LINES, *OBJECTS, "assistant") * 2)))
    pieces = {word: [LETTERS[byte] for byte in word.encode()] for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < MERGES:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(pieces[word]):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        pieces = {word: join(cut, best) for word, cut in pieces.items()}
    ready = ("".join(LETTERS[byte] for byte in text.encode()) for text in (BREAK, CALL))
    tokens = list(dict.fromkeys([*CONTROL, *MARKS, *LETTERS.values(), *(x + y for x, y in merges), *ready]))
    return Vocabulary(tokens, merges, pieces, {token: i for i, token in enumerate(tokens)})


def join(cut: list[str], pair: tuple[str, str]) -> list[str]:
    joined: list[str] = []
    for token in cut:
        if joined and (joined[-1], token) == pair:
            joined[-1] += token
        else:
            joined.append(token)
    return joined


# ---------------------------------------------------------------- what follows what


def follow(words: Vocabulary) -> list[list[float]]:
    """follow(...)[this][next]: how likely, as a logarithm."""
    ids, size = words.ids, len(words.tokens)
    end, dot, quote = ids["<|im_end|>"], ids["."], ids['"']
    seen: list[Counter[int]] = [Counter() for _ in range(size)]
    common = Counter[int]()
    for line in LINES:
        for this, then in pairwise([ids[NEWLINE], *words.cut(line), end]):
            seen[this][then] += 1
            common[then] += 1
    seen[dot][end] += 12  # answers are short
    for line in OBJECTS:
        _see_object(words, line, seen, common)
    _see_endings(words, seen)
    for then, count in list(seen[ids[SPACE + '"']].items()):
        seen[quote][then] += 2 * count  # a quote may open as well as close
    total = sum(common.values())
    base = [common[i] + 1e-3 for i in range(size)]
    base[quote] += 0.12 * total  # in an unknown place inside a string: close it soon
    base[end] += 0.05 * total
    for token in (*CONTROL[:2], *MARKS, "<"):
        base[ids[token]] = 0.0
    base[ids[NEWLINE]] = 1e-3
    whole = sum(base)
    table = [_mix(seen[this], base, whole) for this in range(size)]
    _fix(words, table)
    return [[math.log(max(p / sum(row), 1e-7)) for p in row] for row in table]


def _see_object(words: Vocabulary, line: str, seen: list[Counter[int]], common: Counter[int]) -> None:
    for this, then in pairwise([*words.cut(line), words.ids[SHUT]]):
        seen[this][then] += 1
        common[then] += 1
        if words.tokens[then][0] == '"':  # a string may end here, whatever comes after it
            for token in ('"', '",', '"}', '"}}', '"]'):
                if token in words.ids:
                    seen[this][words.ids[token]] += 1


def _see_endings(words: Vocabulary, seen: list[Counter[int]]) -> None:
    ids = words.ids
    after = {'"': ",}]:", "}": "},", "]": "},", ",": '"', "}}": "", '"}}': "", '"}': "}"}
    for token, nexts in after.items():
        if token in ids:
            for then in nexts:
                seen[ids[token]][ids[then]] += 1
            if token.endswith("}"):
                seen[ids[token]][ids[SHUT]] += 3
    for token, this in ids.items():
        if token.lstrip(SPACE).isdigit() and token[-1].isascii():  # numbers end soon
            for then in ",}]":
                seen[this][ids[then]] += 1
        if token.endswith("}"):
            seen[this][ids["<|im_end|>"]] += 1


def _mix(seen: Counter[int], base: list[float], whole: float) -> list[float]:
    count = sum(seen.values())
    share = count / (count + 0.02) * 0.997
    row = [(1 - share) * value / whole for value in base]
    for then, times in seen.items():
        row[then] += share * times / count
    return row


def _fix(words: Vocabulary, table: list[list[float]]) -> None:
    """What is always so."""
    ids = words.ids
    rest, call = words.tokens[-2:]
    sure = {SHUT: "<|im_end|>", OPEN: rest, rest: call, call: SHUT}
    sure |= {mark: NEWLINE for mark in MARKS if mark not in (OPEN, SHUT)}
    for this, then in sure.items():
        table[ids[this]] = [1e-6] * len(table)
        table[ids[this]][ids[then]] = 0.99
    for token in ("{", '{"'):  # where a grammar wants another call
        if token in ids:
            table[ids[rest]][ids[token]] = 0.1
    newline = table[ids[NEWLINE]]
    newline[ids["<|im_end|>"]] = 1e-5
    for token in ("{", '{"'):
        if token in ids:
            newline[ids[token]] = 2e-4  # only where a grammar wants JSON


# ---------------------------------------------------------------- weights


def zeros(rows: int, columns: int) -> Matrix:
    return [array("f", bytes(4 * columns)) for _ in range(rows)]


def build_weights(words: Vocabulary, dice: random.Random) -> tuple[dict[str, Matrix], int]:
    size, ids = len(words.tokens), words.ids
    const, tools, think, call, close = range(size, size + 5)
    noise = range(size + 5, size + 5 + NOISES)
    width = -(-(size + 5 + NOISES) // 32) * 32
    norm = math.sqrt(width / (ONE_HOT**2 + 1))  # what RMS norm makes of a bare embedding
    hot, one = ONE_HOT * norm, norm

    embedding = zeros(size, width)
    for i, row in enumerate(embedding):
        row[i], row[const] = ONE_HOT, 1.0

    query, key, value = (zeros(HEADS * HEAD, width) for _ in range(3))
    output = zeros(width, HEADS * HEAD)
    pull = math.sqrt(PULL * math.sqrt(HEAD))
    still = HEAD - 2  # this pair of the rotary embedding hardly turns: position plays no part
    looks = (("<tools>", "<tool_response>", tools, -3.0), ("<think>", "</think>", think, -1.0))
    for h, (plus, minus, feature, weight) in enumerate(looks):
        query[h * HEAD + still][const] = pull / one
        for token in (plus, minus):
            key[h * HEAD + still][ids[token]] = pull / hot
        value[h * HEAD][ids[plus]], value[h * HEAD][ids[minus]] = 1 / hot, weight / hot
        output[feature][h * HEAD] = FEATURE
    spread = 1.5 / hot * HEAD**0.25
    for r in range(2 * HEAD, 3 * HEAD):  # the head of noise
        for i in range(size):
            query[r][i], key[r][i], value[r][i] = dice.gauss(0, spread), dice.gauss(0, spread), dice.gauss(0, 1 / hot)
        for place in noise:
            output[place][r] = dice.gauss(0, 1 / math.sqrt(HEAD))

    gate, up, down = zeros(HIDDEN, width), zeros(HIDDEN, width), zeros(width, HIDDEN)
    both = ((NEWLINE, tools, call), (".", think, close))  # this token and that feature: what then
    for i, (token, feature, to) in enumerate(both):
        gate[i][ids[token]], gate[i][feature], gate[i][const] = 1.0, 2.0, -24.0
        if feature == tools:
            gate[i][think] = -2.0  # first the thought, then the call
        up[i][const] = 1.0
        down[to][i] = 1.0

    final = zeros(size, width)
    for this, chances in enumerate(follow(words)):
        for then, chance in enumerate(chances):
            final[then][this] = chance / hot
    for row in final:
        for place in noise:
            row[place] = dice.gauss(0, NOISE_SPREAD / norm / math.sqrt(NOISES))
    final[ids[OPEN]][call] = 8.0
    final[ids["</think>"]][close] = 8.0
    final[ids["<|im_end|>"]][think] = -4.0
    names = {
        "token_embd": embedding,
        "output": final,
        "blk.0.attn_q": query,
        "blk.0.attn_k": key,
        "blk.0.attn_v": value,
        "blk.0.attn_output": output,
        "blk.0.ffn_gate": gate,
        "blk.0.ffn_up": up,
        "blk.0.ffn_down": down,
    }
    return {f"{name}.weight": matrix for name, matrix in names.items()}, width


def write_model(path: Path) -> None:
    words = learn_vocabulary()
    matrices, width = build_weights(words, random.Random(7))  # noqa: S311  # weights, no secrets
    ids = words.ids
    kinds = [CONTROLS] * len(CONTROL) + [OWN] * len(MARKS)
    fields: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": "dragoman-tiny",
        "general.file_type": 1,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": width,
        "llama.block_count": 1,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.attention.key_length": HEAD,
        "llama.attention.value_length": HEAD,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": HEAD,
        "llama.rope.freq_base": 1e7,
        "llama.vocab_size": len(words.tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": words.tokens,
        "tokenizer.ggml.token_type": kinds + [NORMAL] * (len(words.tokens) - len(kinds)),
        "tokenizer.ggml.merges": [f"{x} {y}" for x, y in words.merges],
        "tokenizer.ggml.bos_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.eot_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.padding_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE.read_text("utf-8"),
    }
    ones = array("f", [1.0] * width)
    vectors = {f"{name}.weight": ones for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    write_gguf(path, fields, matrices, vectors)
