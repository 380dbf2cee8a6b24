"""balancesim: a discrete-event simulator of large-language-model serving at the wireless edge."""

__version__ = "0.1.0"
