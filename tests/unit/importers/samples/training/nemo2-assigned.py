from nemo.collections import llm

recipe = llm.llama3_8b.pretrain_recipe(name="rows", num_nodes=2, num_gpus_per_node=8)
recipe.trainer.strategy.tensor_model_parallel_size = 2
recipe.trainer.strategy.pipeline_model_parallel_size = 1
recipe.trainer.strategy.context_parallel_size = 1
recipe.data.micro_batch_size = 2
recipe.data.global_batch_size = 128
recipe.data.seq_length = 4096
recipe.optim.config.use_distributed_optimizer = True
recipe.optim.config.lr = 0.0001
recipe.model.config.recompute_granularity = "full"
recipe.model.config.recompute_method = "uniform"
recipe.model.config.recompute_num_layers = 1
