"""Hold the nearest neighbors that the paper prints: Table 1 for WikiText-2, Table 2 for text8."""

_TABLE_1 = {
    "camera": "footage shots shooting screen shoot setting showing",
    "zoo": "gorillas bars spiders exhibit Pattycake sharing lowland",
    "literature": "literary poets languages language writings tradition references",
    "moon": "observations observation Venus solar transit measurements atmosphere",
    "coin": "coins dollar dollars Mint purchase fund costs",
    "leather": "silk cloth wrapped manufactured mud synthetic mills",
    "cold": "warm heat exposed hot winter falling dry",
    "spring": "winter summer kept fall brief Over arrival",
    "queen": "ruler mentions kings supreme throne kingdom succession",
    "asteroid": "planets probe orbit spacecraft NASA Solar orbits",
}
_TABLE_1_WORD2VEC = {
    "camera": "reggae synthesizers backup retro boots carriage bouncing",
    "zoo": "griffin Avis Reader headpiece earthworks Sleat Owl",
    "literature": "Kannada writings Fu tradition poets Vaishnava historical",
    "moon": "skeletal reactivity equilibrium sodium spectral infrared triangular",
    "coin": "dollar convention solution price potential program annular",
    "leather": "twigs pipes longitudinal bags triangular tapered gum",
    "cold": "curved snow reaches beak rough bars loop",
    "spring": "autumn 1900s 1940s 1880s 1870s 2000s 1800s",
    "queen": "Blanche Wentworth diplomat bodyguard mathematician relates prince",
    "asteroid": "molecule insect orientation isotope triangle undirected flash",
}
_TABLE_2 = {
    "green": "blue red white yellow black color brown",
    "airport": "railway rail downtown airlines traffic train metropolitan",
    "celebrity": "interviews credits kids favorite talent joy charity",
    "microsoft": "windows operating apple mac os dos macintosh",
    "ancient": "greek middle historical pre latin medieval tradition",
    "byzantine": "emperors dynasty ottoman conquered constantinople conquest rulers",
    "roman": "empire church catholic holy eastern christian ancient",
    "dinosaur": "dinosaurs prehistoric fossils habitat insect specimen elephants",
    "dracula": "frankenstein vampire noir adaptations godzilla cyberpunk horror",
    "godzilla": "sequel monsters monster adventure anime horror robot",
}
_TABLE_2_WORD2VEC = {
    "green": "shade lantern purple onion violet herring panther",
    "airport": "heathrow ferry destinations monorail airline flights hub",
    "celebrity": "britney quiz vh listings portrayals futurama syndicated",
    "microsoft": "novell xp excel hypercard borland netscape macromedia",
    "ancient": "hellenistic etruscan sumerian vedic mycenaean phoenician hellenic",
    "byzantine": "achaemenid seleucid assyrian justinian hittite heraclius frankish",
    "roman": "byzantine frankish aztec claudian gaius aurelius seleucid",
    "dinosaur": "mammal reptiles lizard dodo zebra bipedal skeleton",
    "dracula": "stoker bram vampire lugosi bela poirot remake",
    "godzilla": "lugosi toho miniseries bela remake akira highlander",
}


def _lists(table: dict[str, str]) -> dict[str, list[str]]:
    return {word: neighbors.split() for word, neighbors in table.items()}


# Of the paper's own method, and of the word2vec that it compares with.
PUBLISHED = {1: _lists(_TABLE_1), 2: _lists(_TABLE_2)}
PUBLISHED_WORD2VEC = {1: _lists(_TABLE_1_WORD2VEC), 2: _lists(_TABLE_2_WORD2VEC)}
