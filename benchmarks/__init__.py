"""Benchmarks: what the site, the exports and the checks cost, as ratios of runs made side by side."""
