"""What trainers call what they tell of a step: one row a quantity, trl's names of today first.

`objective/...`, `policy/...` and `loss/...` are those of trl's own PPO (until 1.12) and Online DPO;
`margin` and `accuracy` those of its RewardTrainer. Two names of one row may have two scales, so a
quantity is only compared under one name.
"""

KL = ("kl", "objective/kl")
ENTROPY = ("entropy", "objective/entropy", "policy/entropy_avg")
CLIP_FRACTION = ("clip_ratio/region_mean", "clip_ratio", "policy/clipfrac_avg")
LENGTH = ("completions/mean_length", "completion_length")
REWARD = ("reward", "objective/scores")
MARGIN = ("rewards/margins", "margin")
ACCURACY = ("rewards/accuracies", "accuracy", "mean_token_accuracy")
POLICY_LOSS = ("policy_loss", "loss/policy_avg")
VALUE_LOSS = ("value_loss", "loss/value_avg")
