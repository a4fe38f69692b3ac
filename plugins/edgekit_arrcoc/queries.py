r"""Queries: from words to a vector that the model reads, with the known words and words with a similar meaning.

Lower-case words are rows of a table that is 768 wide; a query is the mean of its words' rows. A query with an unknown
word is refused: "not red" without its first word would mean the opposite. The whole encoder, for a platform that
copies it::

    known = json.loads(pathlib.Path("vocabulary.json").read_text())
    table = numpy.fromfile("embeddings.bin", "i1").reshape(-1, known["dim"])
    table = known["scale"] * table.astype("f4") + numpy.float32(known["offset"])
    row = {word: table[index] for word, index in zip(known["words"], known["rows"])}
    query = numpy.mean([row[word] for word in re.findall(r"[^\W_]+", text.lower())], 0)  # KeyError: an unknown word

Rows are fixed, not learned: odd multiples of 1/256 in (-1, 1), drawn by `counter_rng`. So sums are exact in float32 and
every platform computes the same mean. Synonyms share a row. A byte holds a value: 2 / 256 of it, plus 1 / 256.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import torch

from edgekit.reference.vocabulary import Vocabulary
from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.knowing import QUERY_WIDTH

ATTRIBUTES = (
    ("small", "medium", "large"),
    ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink", "brown", "white", "black"),
    ("plain", "striped", "dotted", "checkered", "zigzag", "speckled", "ringed"),
    ("circle", "square", "triangle", "star", "cross", "ring", "heart", "crescent", "arrow", "bar"),
)
"""The values of the attributes of an object: size, colour, texture, shape, in the order of words in a query."""
OBJECT = "object"
"""The concept of any object; in addition to attributes it changes nothing."""
OUTLINE = "outline"
"""The concept of the borders of objects."""
DRAWN = (*(value for values in ATTRIBUTES for value in values), OBJECT, OUTLINE)
"""Possible meanings of a word for drawn shapes: the attributes' values in order, then any object, then outlines."""
SYNONYMS = {
    "small": ("tiny", "little"),
    "large": ("big", "huge"),
    "cyan": ("turquoise", "teal"),
    "purple": ("violet",),
    "plain": ("solid",),
    "striped": ("stripes", "stripy"),
    "dotted": ("dots", "spotted"),
    "checkered": ("chequered", "checked"),
    "speckled": ("mottled",),
    "ringed": ("concentric",),
    "zigzag": ("chevron", "chevrons"),
    "cross": ("crosses", "plus"),
    "circle": ("circles", "disc", "discs"),
    "ring": ("rings", "donut"),
    "crescent": ("crescents", "moon"),
    "bar": ("bars", "rectangle", "rectangles"),
    "square": ("squares",),
    "triangle": ("triangles",),
    "star": ("stars",),
    "heart": ("hearts",),
    "arrow": ("arrows",),
    OBJECT: ("objects", "thing", "things", "anything", "everything", "shape", "shapes"),
    OUTLINE: ("outlines", "edge", "edges", "border", "borders", "contour", "contours"),
}
"""Additional words for a concept."""
SEED = 768
SCALE, OFFSET = 2 / 256, 1 / 256
"""A value of a row is `SCALE` times its byte, from -128 to 127, plus `OFFSET`."""
GROUPS = {
    "animal": (
        "cat", "dog", "horse", "cow", "pig", "sheep", "goat", "lion", "tiger", "bear", "panda", "koala", "fox",
        "wolf", "monkey", "gorilla", "elephant", "mouse", "rabbit", "hamster", "squirrel", "hedgehog", "bat", "deer",
        "camel", "giraffe", "zebra", "rhinoceros", "kangaroo", "unicorn", "frog", "turtle", "snake", "lizard",
        "crocodile", "dragon", "dinosaur", "fish", "shark", "whale", "dolphin", "octopus", "crab", "lobster",
        "shrimp", "snail", "butterfly", "bee", "ladybug", "ant", "spider", "scorpion", "caterpillar",
    ),
    "bird": ("chicken", "chick", "duck", "owl", "eagle", "penguin", "parrot", "flamingo", "swan", "dove", "turkey"),
    "flower": ("rose", "tulip", "sunflower", "blossom", "bouquet"),
    "fruit": (
        "apple", "pear", "banana", "grapes", "strawberry", "cherries", "watermelon", "melon", "pineapple", "peach",
        "lemon", "tangerine", "kiwi", "coconut", "mango",
    ),
    "vegetable": (
        "carrot", "tomato", "corn", "eggplant", "cucumber", "broccoli", "pepper", "potato", "avocado", "mushroom",
    ),
    "food": (
        "bread", "croissant", "cheese", "egg", "hamburger", "pizza", "sandwich", "fries", "hotdog", "taco", "popcorn",
        "sushi", "cookie", "cake", "chocolate", "candy", "lollipop", "icecream", "bacon",
    ),
    "drink": ("coffee", "beer", "wine", "cocktail", "milk"),
    "vehicle": (
        "car", "taxi", "bus", "truck", "ambulance", "tractor", "train", "bicycle", "motorcycle", "scooter",
        "airplane", "helicopter", "rocket", "sailboat", "ship",
    ),
    "building": ("house", "castle", "church", "school", "factory", "skyscraper", "tent"),
    "plant": ("tree", "palm", "pine", "cactus", "clover", "leaf"),
    "clothes": (
        "shirt", "dress", "jeans", "shoe", "boot", "hat", "crown", "glasses", "tie", "sock", "glove", "scarf", "coat",
    ),
    "instrument": ("guitar", "piano", "violin", "trumpet", "drum"),
    "ball": ("football", "basketball", "baseball", "tennis", "volleyball", "rugby"),
    "tool": ("hammer", "wrench", "scissors", "axe", "saw", "key", "lock", "knife", "spoon", "magnet"),
    "person": ("man", "woman", "boy", "girl", "baby"),
    "thing": (),
}  # fmt: skip
"""Group -> the nouns in it. `thing` has all remaining nouns."""
NOUNS = (
    *(noun for nouns in GROUPS.values() for noun in nouns),
    "smiley", "robot", "ghost", "alien", "skull", "snowman", "hand", "eye", "ear", "foot", "sun", "cloud", "umbrella",
    "snowflake", "rainbow", "lightning", "fire", "mountain", "volcano", "globe", "book", "newspaper", "pencil",
    "envelope", "paperclip", "calendar", "chart", "clock", "watch", "hourglass", "phone", "telephone", "computer",
    "laptop", "keyboard", "television", "camera", "radio", "battery", "lightbulb", "candle", "flashlight", "bed",
    "chair", "door", "bathtub", "toilet", "bucket", "soap", "toothbrush", "cup", "bottle", "teapot", "gift",
    "balloon", "trophy", "medal", "bell", "kite", "dice", "teddy", "puzzle", "cart", "basket", "bag", "backpack",
    "briefcase", "purse", "coin", "money", "diamond", "bomb", "sword", "shield", "anchor", "wheel", "telescope",
    "microscope", "syringe", "pill", "bone", "tooth", "magnifier", "microphone", "headphones", "lipstick", "trash",
)  # fmt: skip
"""All nouns, by group, then the rest."""
NAMES = (*NOUNS, *(group for group in GROUPS if group != "thing"))
"""Possible meanings of a word in addition to the attributes: a noun, or any noun of a group."""
UNSURE = (
    "goat", "instrument", "purse", "trash", "axe", "glove", "clothes", "cucumber", "shoe", "wrench", "bicycle", "snake",
    "watch", "teapot", "alien", "money", "turkey", "flashlight", "tent", "tennis", "robot", "rhinoceros", "toothbrush",
    "shrimp", "bag", "scorpion", "sock", "crab", "radio",
)  # fmt: skip
"""Words in training that the shipped model refuses: in an unseen style, it missed more than 40 % of these objects, or
found as many in wrong places (1,536 scenes of `training.sets.TUNING` on photographs, as many flat pictures, eight
queries each)."""
CONCEPTS = (*DRAWN, *(name for name in NAMES if name not in UNSURE))
"""Possible meanings of a word for the shipped model."""
MEANINGS = (*DRAWN, *NAMES)
"""Possible meanings of a word in training: the same, and the nouns that the shipped model refuses."""
NOUN_SYNONYMS = {
    "cat": ("kitty", "kitten", "kittens", "pussycat", "tomcat", "feline"),
    "dog": ("puppy", "puppies", "doggy", "hound", "poodle", "pup"),
    "horse": ("pony", "stallion", "mare", "foal"),
    "cow": ("bull", "ox", "cattle", "calf"),
    "pig": ("piggy", "hog", "boar", "piglet", "swine"),
    "sheep": ("lamb", "ram", "ewe"),
    "bear": ("grizzly",),
    "monkey": ("ape", "chimpanzee", "chimp"),
    "elephant": ("mammoth",),
    "mouse": ("rat", "rats"),
    "rabbit": ("bunny", "bunnies", "hare"),
    "squirrel": ("chipmunk",),
    "deer": ("stag", "doe", "reindeer"),
    "rhinoceros": ("rhino",),
    "frog": ("toad",),
    "turtle": ("tortoise",),
    "snake": ("serpent", "cobra"),
    "lizard": ("gecko", "iguana"),
    "crocodile": ("alligator", "croc"),
    "dinosaur": ("trex", "sauropod", "dino"),
    "fish": ("fishes", "goldfish"),
    "octopus": ("octopi", "squid"),
    "shrimp": ("prawn", "prawns"),
    "butterfly": ("moth",),
    "bee": ("honeybee", "bumblebee", "wasp"),
    "ladybug": ("ladybird", "beetle"),
    "caterpillar": ("worm", "centipede"),
    "bird": ("birdie",),
    "chicken": ("hen", "rooster"),
    "dove": ("pigeon",),
    "blossom": ("daisy", "hibiscus"),
    "grapes": ("grape",),
    "cherries": ("cherry",),
    "lemon": ("lime",),
    "tangerine": ("mandarin", "clementine"),
    "corn": ("maize",),
    "eggplant": ("aubergine",),
    "pepper": ("chili", "chilli", "paprika"),
    "mushroom": ("toadstool", "fungus"),
    "bread": ("loaf", "toast", "baguette"),
    "hamburger": ("burger", "cheeseburger"),
    "fries": ("chips",),
    "hotdog": ("sausage",),
    "cookie": ("biscuit",),
    "cake": ("cupcake", "birthday", "pie"),
    "candy": ("sweet", "sweets"),
    "icecream": ("gelato", "sundae"),
    "coffee": ("espresso", "tea"),
    "beer": ("ale", "lager"),
    "cocktail": ("martini",),
    "car": ("automobile", "sedan", "auto"),
    "taxi": ("cab",),
    "bus": ("minibus", "coach"),
    "truck": ("lorry", "van", "pickup"),
    "train": ("locomotive", "railway", "tram", "metro"),
    "bicycle": ("bike", "cycle"),
    "motorcycle": ("motorbike",),
    "scooter": ("moped", "vespa"),
    "airplane": ("plane", "aeroplane", "aircraft", "jet"),
    "helicopter": ("chopper",),
    "rocket": ("spaceship", "spacecraft"),
    "sailboat": ("boat", "yacht", "sailing"),
    "ship": ("ferry", "cruise", "vessel"),
    "house": ("home", "cottage", "hut", "cabin"),
    "castle": ("fortress", "palace"),
    "church": ("chapel", "cathedral"),
    "skyscraper": ("office", "hotel", "tower"),
    "tree": ("oak",),
    "pine": ("fir", "spruce", "evergreen"),
    "clover": ("shamrock",),
    "shirt": ("tshirt", "blouse"),
    "jeans": ("trousers", "pants"),
    "shoe": ("sneaker", "sneakers"),
    "hat": ("tophat", "cap"),
    "crown": ("tiara",),
    "glasses": ("eyeglasses", "spectacles", "sunglasses"),
    "tie": ("necktie",),
    "glove": ("mitten", "mittens"),
    "coat": ("jacket",),
    "piano": ("organ",),
    "violin": ("fiddle", "cello"),
    "trumpet": ("horn", "saxophone"),
    "football": ("soccer",),
    "lock": ("padlock",),
    "knife": ("dagger",),
    "wrench": ("spanner",),
    "axe": ("hatchet",),
    "man": ("guy", "gentleman", "father", "dad"),
    "woman": ("lady", "mother", "mum", "mom"),
    "boy": ("lad",),
    "baby": ("infant", "toddler"),
    "person": ("human", "child", "children", "kid", "kids"),
    "smiley": ("smile", "face", "faces", "emoji", "grin"),
    "skull": ("skeleton",),
    "hand": ("fist", "thumb"),
    "foot": ("leg",),
    "sun": ("sunshine",),
    "lightning": ("thunderbolt", "bolt"),
    "fire": ("flame", "flames"),
    "globe": ("earth", "planet", "world"),
    "book": ("textbook", "novel"),
    "envelope": ("letter", "mail", "email"),
    "pencil": ("pen", "crayon"),
    "clock": ("alarm",),
    "watch": ("wristwatch",),
    "phone": ("smartphone", "cellphone", "iphone", "mobile"),
    "computer": ("desktop", "pc", "monitor"),
    "laptop": ("notebook", "macbook"),
    "television": ("tv", "telly"),
    "lightbulb": ("bulb", "lamp"),
    "flashlight": ("torch",),
    "chair": ("stool", "armchair"),
    "bathtub": ("bath", "tub"),
    "cup": ("mug", "glass"),
    "teapot": ("kettle",),
    "gift": ("present", "parcel"),
    "trophy": ("award",),
    "dice": ("die",),
    "puzzle": ("jigsaw",),
    "teddy": ("plush",),
    "cart": ("trolley",),
    "purse": ("handbag", "clutch"),
    "briefcase": ("suitcase", "luggage"),
    "money": ("cash", "dollar", "dollars", "banknote"),
    "diamond": ("gem", "jewel", "gemstone"),
    "headphones": ("headphone", "headset"),
    "pill": ("tablet", "medicine", "capsule"),
    "magnifier": ("loupe",),
    "trash": ("bin", "wastebasket", "garbage"),
    "animal": ("creature", "beast", "mammal", "pet"),
    "vegetable": ("veggie", "veggies"),
    "food": ("snack", "meal", "dish"),
    "drink": ("beverage",),
    "building": ("architecture",),
    "clothes": ("clothing", "garment", "apparel"),
    "tool": ("utensil",),
}
"""Additional words for a noun or a group, apart from its plural."""
PLURALS = {
    "sheep": "sheep", "wolf": "wolves", "deer": "deer", "mouse": "mice", "shrimp": "shrimp", "tomato": "tomatoes",
    "mango": "mangoes", "potato": "potatoes", "corn": "corn", "broccoli": "broccoli", "bread": "bread",
    "popcorn": "popcorn", "sushi": "sushi", "bacon": "bacon", "milk": "milk", "cactus": "cacti", "leaf": "leaves",
    "scarf": "scarves", "tennis": "tennis", "rugby": "rugby", "knife": "knives", "man": "men", "woman": "women",
    "snowman": "snowmen", "foot": "feet", "lightning": "lightning", "fire": "fire", "volcano": "volcanoes",
    "dice": "dice", "money": "money", "tooth": "teeth", "trash": "trash", "person": "people",
}  # fmt: skip
"""Irregular plurals; an uncountable noun is its own plural."""
NEAR = {
    "red": "crimson maroon ruby scarlet",
    "orange": "amber",
    "yellow": "gold golden",
    "green": "emerald",
    "blue": "azure navy",
    "purple": "indigo lavender lilac magenta mauve",
    "pink": "fuchsia",
    "brown": "beige tan",
    "white": "ivory",
    "small": "mini",
    "large": "enormous giant gigantic immense",
    "circle": "dot ellipse oval round",
    "square": "box cube",
    "star": "asterisk",
    "striped": "lined",
    "cross": "crucifix",
    "cat": "bobcat cheetah cougar jaguar panther tabby",
    "dog": "beagle bulldog collie dachshund greyhound husky mutt spaniel terrier",
    "horse": "bronco colt filly mustang",
    "cow": "heifer oxen",
    "lion": "lioness",
    "wolf": "coyote",
    "monkey": "baboon orangutan orangutang",
    "rabbit": "cottontail",
    "deer": "caribou elk moose",
    "frog": "bullfrog",
    "fish": "salmon",
    "bee": "hornet",
    "ladybug": "firefly",
    "spider": "tarantula",
    "caterpillar": "earthworm",
    "parrot": "parakeet",
    "blossom": "chrysanthemum",
    "bread": "bagel bun muffin pretzel",
    "chocolate": "cocoa",
    "candy": "caramel fudge marshmallow",
    "wine": "champagne sherry",
    "milk": "buttermilk",
    "car": "convertible cruiser limousine",
    "taxi": "taxicab",
    "train": "monorail railroad subway",
    "motorcycle": "bike",
    "airplane": "airliner biplane bomber glider hydroplane",
    "rocket": "missile",
    "sailboat": "barge canoe houseboat kayak lifeboat pontoon rowboat speedboat",
    "ship": "battleship destroyer freighter frigate submarine tanker",
    "house": "bungalow condominium dwelling manor",
    "church": "abbey",
    "factory": "foundry",
    "tree": "arbor aspen beech cedar conifer cottonwood dogwood elm hazel laurel mangrove sapling willow",
    "dress": "gown",
    "hat": "bonnet",
    "glasses": "bifocals goggles shades",
    "coat": "overcoat raincoat",
    "drum": "tambourine",
    "scissors": "shears",
    "lock": "latch",
    "man": "boyfriend daddy dude papa sir",
    "woman": "bridesmaid girlfriend housewife madame mama mamma matriarch momma widow wife",
    "boy": "chap fellow schoolboy",
    "baby": "newborn",
    "book": "paperback scrapbook",
    "computer": "mainframe microcomputer minicomputer supercomputer workstation",
    "lightbulb": "lantern",
    "chair": "footstool throne wheelchair",
    "toilet": "lavatory privy washroom",
    "bottle": "canteen flask jug vial",
    "cart": "rickshaw",
    "backpack": "knapsack",
    "briefcase": "baggage",
    "bomb": "grenade",
    "sword": "saber sabre",
    "pill": "antibiotic aspirin medication penicillin tranquillizer",
    "bone": "collarbone cranium jaw jawbone kneecap vertebra wishbone",
    "tooth": "incisor molar",
    "animal": "anteater armadillo carnivore equine ferret hyena livestock mongoose mule rhino rodent walrus wombat",
    "bird": (
        "blackbird bluebird buzzard condor crow falcon finch goose gosling hawk hummingbird lark magpie "
        "mockingbird nightingale pheasant poultry raven robin sparrow vulture woodpecker"
    ),
    "flower": "carnation marigold orchid poppy",
    "fruit": "berry blackberry citrus cocoanut olive raisin",
    "vegetable": "bean cabbage greens pea",
    "food": (
        "butter carp catfish gingerbread granola ham herring jerky meat pancake pork roast steak tortilla "
        "waffle yoghurt yogurt"
    ),
    "drink": "alcohol booze brandy cider gin lemonade liquor rum vodka whiskey whisky",
    "vehicle": "boxcar chariot tricycle wagon",
    "building": "clubhouse dormitory edifice garage greenhouse mosque pagoda",
    "ball": "softball",
    "tool": "chainsaw drill pliers screwdriver scythe shovel sledgehammer",
}
"""Known word -> words, in one text, that ask for it: kinds of it that the model does not know by name.

Proposed by `python -m training.near` from WordNet 3.0 (Princeton University; is-a relations of a word's first sense) if
the sentence encoder all-MiniLM-L6-v2 (Apache-2.0) rates the two as alike, then checked and cut by hand; the attributes
are by hand. The encoder alone misleads for single words: its nearest to "louse" is "magnifier".
"""


def vocabulary() -> Vocabulary:
    """Return the vocabulary of the family, computed from its definition."""
    means = {
        word: MEANINGS.index(concept)
        for concept in CONCEPTS
        for word in ((concept, *SYNONYMS.get(concept, ())) if concept in DRAWN else words_for(concept))
    }
    near = {word: tuple(text.split()) for word, text in NEAR.items()}
    return Vocabulary(tuple(means), concept_table().numpy()[list(means.values())], near)


def concept_table() -> torch.Tensor:
    """Return the row of each of `MEANINGS`: [concepts, 768] float32, odd multiples of 1/256 in (-1, 1).

    A noun's row depends only on the word.
    """
    ids = torch.arange(len(DRAWN)) + SEED * len(DRAWN)
    seeds = torch.cat([ids, torch.tensor([zlib.crc32(word.encode()) for word in NAMES])])
    return (2 * Chance(seeds).below(256, QUERY_WIDTH) - 255).to(torch.float32) / 256.0


def save(vocabulary: Vocabulary, folder: Path) -> None:
    """Write `vocabulary.json` and `embeddings.bin` (int8, row-major, each row once)."""
    numbers: dict[bytes, int] = {}
    rows = [numbers.setdefault(row.tobytes(), len(numbers)) for row in vocabulary.table]
    metadata = {"dim": QUERY_WIDTH, "scale": SCALE, "offset": OFFSET, "words": vocabulary.words, "rows": rows}
    metadata["near"] = vocabulary.near
    (folder / "vocabulary.json").write_text(json.dumps(metadata) + "\n", encoding="utf-8")
    table = np.stack([np.frombuffer(row, np.float32) for row in numbers])
    (folder / "embeddings.bin").write_bytes(((table - OFFSET) / SCALE).astype(np.int8).tobytes())


def words_for(name: str) -> tuple[str, ...]:
    """Return the words for a noun or a group: the name, its plural, and additional words."""
    return tuple(dict.fromkeys((name, plural(name), *NOUN_SYNONYMS.get(name, ()))))


def plural(noun: str) -> str:
    """Return the plural of a noun in English."""
    if noun in PLURALS:
        return PLURALS[noun]
    if noun.endswith(("ss", "x", "ch", "sh")) or noun == "bus":
        return noun + "es"
    if noun.endswith("s"):
        return noun
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"
