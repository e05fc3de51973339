"""Extensions that come with aar; none is loaded unless ``[extensions] use`` names it."""
