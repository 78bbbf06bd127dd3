# mlaplan: engine=sglang@0.5.23 chip=mi300x
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --attention-backend aiter \
    --context-length 65536 --mem-fraction-static 0.9
