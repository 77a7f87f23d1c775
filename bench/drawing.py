"""How benchmarks draw."""


def pyplot():
    """matplotlib's, whose figures of the same rows are the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gigaknn"})  # text as text
    from matplotlib import pyplot

    return pyplot
