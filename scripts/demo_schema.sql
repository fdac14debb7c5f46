-- The shop that the running example moves: players, their games, the rounds of each game.

CREATE TABLE player (
    username    TEXT PRIMARY KEY,
    first_name  TEXT NOT NULL,
    last_name   TEXT NOT NULL,
    score       INTEGER                 -- NULL before the first game is over
);

CREATE TABLE game (
    id             INTEGER PRIMARY KEY,
    first_player   TEXT NOT NULL REFERENCES player (username),
    second_player  TEXT NOT NULL REFERENCES player (username),
    status         TEXT NOT NULL CHECK (status IN ('open', 'over', 'left')),
    started_at     TIMESTAMP NOT NULL
);

CREATE TABLE round (
    game_id   INTEGER NOT NULL REFERENCES game (id) ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    moves     TEXT NOT NULL,
    comments  TEXT,
    spell     TEXT,
    PRIMARY KEY (game_id, number)
);

CREATE INDEX game_first_player ON game (first_player);
CREATE INDEX game_second_player ON game (second_player);
