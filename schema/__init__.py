"""What a recipe is: models, vocabularies, loading with positions, checks, selections, launch blocks."""
