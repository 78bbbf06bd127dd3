# SGLang 0.5.5
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp 8 --dcp-size 8 --attention-backend trtllm_mla
