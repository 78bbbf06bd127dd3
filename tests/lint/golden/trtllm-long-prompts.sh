# mlaplan: engine=trtllm@1.1.0 chip=h200-sxm
trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --max_num_tokens 5127 --max_seq_len 16384 \
    --kv_cache_free_gpu_memory_fraction 0.7
