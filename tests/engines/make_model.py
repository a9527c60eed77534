"""Writes a model of 0.3 MB that a real engine loads: a tokenizer trained on the standard
library's sources, and the shape of a Llama with two layers. Its weights are made up by the engine
(`--load-format dummy`), so it talks nonsense, but in all the right forms.
"""

import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

START, BEGIN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCABULARY = 4096
CONTEXT = 4096


def tokenizer():
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[START, BEGIN, END],
        initial_alphabet=pieces.alphabet(),
    )
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
    tokenizer.train([str(source) for source in sources], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=START, model_max_length=CONTEXT
    )
    fast.chat_template = (
        "{% for message in messages %}"
        + BEGIN
        + "{{ message['role'] }}\n{{ message['content'] }}"
        + END
        + "\n{% endfor %}{% if add_generation_prompt %}"
        + BEGIN
        + "assistant\n{% endif %}"
    )
    return fast


def shape():
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=2,
        tie_word_embeddings=True,
        dtype="bfloat16",
    )


place = sys.argv[1]
tokenizer().save_pretrained(place)
shape().save_pretrained(place)
