# mlaplan: engine=trtllm@1.3.0 chip=h200-sxm
cat > options.yaml <<'EOF'
enable_attention_dp: true
kv_cache_config:
  dtype: nvfp4
  tokens_per_block: 32
EOF
trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --max_batch_size 64 --extra_llm_api_options options.yaml
