"""Pictures of the gallery and of the start page, taken from the tutorials and from pages of tasks.

The notebooks keep the pictures of their last run. A build of the pages takes one of each, so that
no picture is made or kept twice. Other pages of tasks have a picture of their own
(`docs/pictures.py tasks`).
"""

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path

# A line of a list that begins with a link to a page.
ENTRY = re.compile(r"^- (\[[^]]*\]\((\S+?)\)): ", re.M)


@dataclass(frozen=True)
class Picture:
    """A picture of a tutorial.

    Parameters
    ----------
    tutorial : the name of the notebook, without its suffix.
    number : which one of its pictures, from 0.
    alt : what it shows, in words, for those who do not see it.
    """

    tutorial: str
    number: int
    alt: str

    @property
    def file(self) -> str:
        """The path below `docs/` to which a build writes the picture."""
        return f"tutorials/pictures/{self.tutorial}.png"


PICTURES = (
    Picture("01_declare_and_ask", 1, "A model as three boxes: label, hidden units and pixels"),
    Picture("02_train_an_rbm", 1, "Digits with missing pixels above, completed below"),
    Picture(
        "03_multivalued_hidden_units",
        0,
        "Mean of a unit by its input, for units of two and "
        "more values: the more values, the flatter",
    ),
    Picture("04_mixing", 0, "Autocorrelation of the energy by lag, of two kernels"),
    Picture(
        "05_rough_landscapes",
        0,
        "Chains of letters in time: some keep their letter, others change it",
    ),
    Picture(
        "06_belief_nets",
        0,
        "Digits whose right half is covered, their completions, and the true images",
    ),
    Picture(
        "07_mixing_it_all",
        1,
        "Digits of which parts or all pixels are hidden, and what completes them",
    ),
    Picture("08_add_your_own", 0, "Digits whose upper half is completed by a model"),
    Picture(
        "09_bayesian_network", 0, "A network of six variables, with bars of their probabilities"
    ),
    Picture(
        "10_chains_and_lattices",
        2,
        "Lattices of spins at three temperatures, from disorder to order",
    ),
    Picture(
        "11_hidden_markov_model",
        0,
        "Probabilities of stages of sleep in a night, with a gap in the data",
    ),
    Picture(
        "12_bayesian_network_from_data",
        0,
        "Learned probabilities with their errors, from "
        "complete rows and from rows with missing cells",
    ),
    Picture("13_tagging_sequences", 0, "Bars of the probabilities of the tags of each word"),
    Picture("14_how_far_to_trust", 0, "Log Z by five methods beside the truth, and their errors"),
)
OF_TUTORIAL = {picture.tutorial: picture for picture in PICTURES}


@dataclass(frozen=True)
class Drawn:
    """A picture of a page of tasks, which is kept in the repository.

    Parameters
    ----------
    task : the name of the page, without its suffix.
    alt : what it shows, in words, for those who do not see it.
    """

    task: str
    alt: str

    @property
    def file(self) -> str:
        """The path below `docs/`."""
        return f"_static/tasks/{self.task}.png"


DRAWN = (
    Drawn("crowd_labels", "A table for each of six people: what they call a cat, a dog and a fox"),
    Drawn("item_response", "Probabilities of the skills of thirty people, slips and guesses"),
    Drawn("mixtures", "Customers in three groups, and log p by the number of groups"),
    Drawn("coupling_analysis", "A map of the couplings of pairs, which finds the contacts"),
    Drawn("denoising", "A clean image, a noisy one with a scratch, and what was restored"),
    Drawn("puzzles", "A sudoku, with its clues in bold and the digits that were found"),
    Drawn("codes", "The wrong bits of a received word, and of the word after some sweeps"),
)

# The tutorials whose pictures pages of tasks have on the start page.
FROM_TUTORIAL = {
    "network_file": "09_bayesian_network",
    "data_table": "12_bayesian_network_from_data",
    "large_data": "12_bayesian_network_from_data",
    "sequences": "11_hidden_markov_model",
    "images": "02_train_an_rbm",
    "missing_values": "07_mixing_it_all",
    "lattice": "10_chains_and_lattices",
    "torch_and_jax": "13_tagging_sequences",
    "log_z": "06_belief_nets",
    "mixing": "05_rough_landscapes",
}
# The pages of tasks on the start page that have a picture.
OF_TASK: dict[str, Picture | Drawn] = {task: OF_TUTORIAL[t] for task, t in FROM_TUTORIAL.items()}
OF_TASK |= {picture.task: picture for picture in DRAWN}


def outputs(notebook: Path) -> list[bytes]:
    """Return the pictures of a notebook, in their order."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    shown = (out.get("data", {}) for cell in cells for out in cell.get("outputs", ()))
    found = (data["image/png"] for data in shown if "image/png" in data)
    return [base64.b64decode(png if isinstance(png, str) else "".join(png)) for png in found]


def write(notebooks: Path, docs: Path) -> None:
    """Write the picture of each tutorial to its file below `docs`."""
    for picture in PICTURES:
        found = outputs(notebooks / f"{picture.tutorial}.ipynb")
        if picture.number >= len(found):
            raise ValueError(
                f"docs/gallery.py takes picture {picture.number} of {picture.tutorial}.ipynb, "
                f"which has {len(found)}: name another one, from 0"
            )
        (docs / picture.file).parent.mkdir(exist_ok=True)
        (docs / picture.file).write_bytes(found[picture.number])


def with_pictures(text: str) -> str:
    """Put its picture before each entry of the lists of a page that has one.

    >>> with_pictures("- [Lattices](tasks/lattice.md): spins.").splitlines()[1]
    '  [Lattices](tasks/lattice.md): spins.'
    """
    return ENTRY.sub(_with_picture, text)


def _with_picture(entry: re.Match[str]) -> str:
    stem = Path(entry[2]).stem
    picture = OF_TASK.get(stem) or OF_TUTORIAL.get(stem)
    if picture is None:
        return entry[0]
    return f"- [![{picture.alt}]({picture.file})]({entry[2]})\n  {entry[1]}: "
