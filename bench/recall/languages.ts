/** Sentences about people in one language. */
export interface Language {
  /** 25 people. */
  names: string;
  /** Six values of each kind. */
  values: Readonly<Record<'city' | 'food' | 'animal' | 'job' | 'hobby' | 'color', string>>;
  /** A fact about `N` with a value, and a later question about it, in other words or other forms of them. */
  topics: Readonly<Record<Topic, readonly [fact: string, question: string]>>;
}

export const TOPICS = {
  lives: 'city',
  travels: 'city',
  born: 'city',
  allergy: 'food',
  favourite: 'food',
  pet: 'animal',
  work: 'job',
  study: 'job',
  free: 'hobby',
  car: 'color',
} as const;

type Topic = keyof typeof TOPICS;

export const LANGUAGES: Readonly<Record<string, Language>> = {
  en: {
    names:
      'Alice,Barbara,Charles,Diana,Edward,Fiona,George,Hannah,Ian,Julia,Kevin,Laura,Martin,Nancy,Oliver,Patricia,Quentin,Rachel,Simon,Teresa,Ursula,Victor,Wendy,Xavier,Yvonne',
    values: {
      city: 'London,Boston,Dublin,Sydney,Toronto,Glasgow',
      food: 'peanuts,shellfish,strawberries,eggs,wheat,almonds',
      animal: 'dog,cat,parrot,rabbit,turtle,hamster',
      job: 'teacher,nurse,carpenter,lawyer,engineer,baker',
      hobby: 'climbing,painting,chess,gardening,sailing,photography',
      color: 'red,green,silver,black,white,yellow',
    },
    topics: {
      lives: ['N has been living in V for a few years now.', 'Where does N live?'],
      travels: ['Next month N travels to V to see the family.', 'What are the travelling plans of N?'],
      born: ['N was born in V and grew up there.', 'What is the birthplace of N, the town of her or his birth?'],
      allergy: ['Careful: N is allergic to V.', 'Which allergies does N have?'],
      favourite: ['N loves dishes with V more than anything else.', 'What dish does N love?'],
      pet: ["N's pet is a V that sleeps on the sofa.", 'What kind of pets does N keep?'],
      work: ['N works as a V in a small company.', 'What is the work of N?'],
      study: ['N has begun to study again, to become a V.', 'What is N studying for?'],
      free: ['On weekends N enjoys V with friends.', 'How does N enjoy the weekend?'],
      car: ['N drives a V car that often breaks down.', 'What colour is the car that N is driving?'],
    },
  },
  de: {
    names:
      'Anton,Birgit,Clemens,Dagmar,Erwin,Friederike,Gustav,Heike,Ingo,Jutta,Konrad,Liesl,Moritz,Nadja,Otto,Petra,Ruprecht,Sabine,Torsten,Ulrike,Volker,Waltraud,Xaver,Ysabel,Zacharias',
    values: {
      city: 'Graz,Zürich,München,Leipzig,Innsbruck,Köln',
      food: 'Erdnüsse,Muscheln,Erdbeeren,Eier,Weizen,Mandeln',
      animal: 'Hund,Kater,Papagei,Hase,Schildkröte,Hamster',
      job: 'Lehrerin,Pfleger,Tischler,Anwältin,Ingenieurin,Bäcker',
      hobby: 'Klettern,Malen,Schach,Gartenarbeit,Segeln,Fotografieren',
      color: 'rotes,grünes,silbernes,schwarzes,weißes,gelbes',
    },
    topics: {
      lives: ['N wohnt seit ein paar Jahren in V.', 'Wo hat N eine Wohnung?'],
      travels: ['Nächsten Monat reist N nach V zu den Eltern.', 'Welche Reisen plant N?'],
      born: ['N wurde in V geboren und ist dort aufgewachsen.', 'Wo ist der Geburtsort von N, wo geboren?'],
      allergy: ['Vorsicht: N ist allergisch gegen V.', 'Welche Allergie hat N?'],
      favourite: ['N isst am liebsten Gerichte mit V.', 'Was ist das Lieblingsgericht von N, was isst N gern?'],
      pet: ['Das Haustier von N, ein V, schläft auf dem Sofa.', 'Welche Haustiere hat N?'],
      work: ['N arbeitet als V in einer kleinen Firma.', 'Welche Arbeit hat N?'],
      study: ['N hat wieder ein Studium begonnen: V.', 'Was studiert N?'],
      free: ['Am Wochenende genießt N V mit Freunden.', 'Was macht N an den Wochenenden?'],
      car: ['N fährt ein V Auto, das oft kaputt ist.', 'Welche Farbe hat das Auto von N?'],
    },
  },
  fr: {
    names:
      'Adélaïde,Benoît,Chloé,Didier,Élodie,Fabrice,Gaëlle,Hugues,Inès,Jérôme,Karine,Léa,Mathieu,Noémie,Océane,Pascal,Quitterie,Rémi,Solène,Thierry,Ulysse,Véronique,Wilfried,Yannick,Zoé',
    values: {
      city: 'Lyon,Marseille,Genève,Québec,Bordeaux,Liège',
      food: 'arachides,moules,fraises,œufs,blé,amandes',
      animal: 'chien,chat,perroquet,lapin,tortue,hamster',
      job: 'institutrice,infirmier,menuisier,avocate,ingénieur,boulanger',
      hobby: "l'escalade,la peinture,les échecs,le jardinage,la voile,la photographie",
      color: 'rouge,verte,argentée,noire,blanche,jaune',
    },
    topics: {
      lives: ['N habite à V depuis quelques années.', 'Où N a-t-il ou a-t-elle son habitation ?'],
      travels: ['Le mois prochain N voyage à V pour voir la famille.', 'Quels sont les voyages prévus par N ?'],
      born: ['N est né à V et y a grandi.', 'Quel est le lieu de naissance de N ?'],
      allergy: ['Attention : N est allergique aux V.', 'Quelles allergies N a-t-il ?'],
      favourite: ['N adore les plats avec des V.', 'Quel plat N adorerait manger ?'],
      pet: ["L'animal de N, un V, dort sur le canapé.", 'Quels animaux N possède-t-il ?'],
      work: ['N travaille comme V dans une petite entreprise.', 'Quel est le travail de N ?'],
      study: ['N a repris ses études pour devenir V.', 'Que N étudie-t-il ?'],
      free: ['Le week-end N pratique V avec des amis.', 'Que fait N pendant les week-ends ?'],
      car: ['N conduit une voiture V souvent en panne.', 'De quelle couleur sont les voitures que N conduit ?'],
    },
  },
  es: {
    names:
      'Alba,Bernardo,Carmen,Domingo,Esperanza,Federico,Gloria,Héctor,Isidro,Jimena,Leandro,Macarena,Nicolás,Olalla,Pilar,Quique,Rocío,Santiago,Tomás,Úrsula,Valentina,Wenceslao,Ximena,Yolanda,Zulema',
    values: {
      city: 'Sevilla,Bogotá,Valencia,Córdoba,Quito,Montevideo',
      food: 'cacahuetes,mariscos,fresas,huevos,trigo,almendras',
      animal: 'perro,gato,loro,conejo,tortuga,hámster',
      job: 'maestra,enfermero,carpintero,abogada,ingeniera,panadero',
      hobby: 'la escalada,la pintura,el ajedrez,la jardinería,la vela,la fotografía',
      color: 'rojo,verde,plateado,negro,blanco,amarillo',
    },
    topics: {
      lives: ['N vive en V desde hace unos años.', '¿Dónde está viviendo N?'],
      travels: ['El próximo mes N viaja a V para ver a la familia.', '¿Qué viajes tiene previstos N?'],
      born: ['N nació en V y creció allí.', '¿Cuál es el lugar de nacimiento de N?'],
      allergy: ['Cuidado: N es alérgico a V.', '¿Qué alergias tiene N?'],
      favourite: ['A N le encantan los platos con V.', '¿Qué plato le encanta a N?'],
      pet: ['La mascota de N, un V, duerme en el sofá.', '¿Qué mascotas tiene N?'],
      work: ['N trabaja como V en una empresa pequeña.', '¿Cuál es el trabajo de N?'],
      study: ['N ha vuelto a estudiar para ser V.', '¿Qué estudia N?'],
      free: ['Los fines de semana N practica V con amigos.', '¿Qué hace N el fin de semana?'],
      car: ['N conduce un coche V que se avería a menudo.', '¿De qué color es el coche que N está conduciendo?'],
    },
  },
  ru: {
    names:
      'Алексей,Борис,Виктор,Григорий,Денис,Евгений,Захар,Игорь,Кирилл,Леонид,Максим,Никита,Олег,Павел,Роман,Сергей,Тимофей,Фёдор,Эдуард,Юрий,Яков,Антон,Вадим,Глеб,Руслан',
    values: {
      city: 'Москве,Казани,Самаре,Томске,Минске,Риге',
      food: 'арахис,мидии,клубнику,яйца,пшеницу,миндаль',
      animal: 'собака,кошка,попугай,кролик,черепаха,хомяк',
      job: 'учителем,медбратом,плотником,адвокатом,инженером,пекарем',
      hobby: 'скалолазанием,живописью,шахматами,садоводством,парусным спортом,фотографией',
      color: 'красной,зелёной,серебристой,чёрной,белой,жёлтой',
    },
    topics: {
      lives: ['N уже несколько лет живёт в V.', 'В каком городе сейчас N? Где он живет?'],
      travels: ['В следующем месяце N побывает в V, поездка к родителям.', 'Какие поездки планирует N?'],
      born: ['N родился в V и вырос там.', 'Где родина, где рождён N?'],
      allergy: ['Осторожно: у человека по имени N аллергия на V.', 'Какие аллергии есть, если это N?'],
      favourite: ['N больше всего любит блюда, где есть V.', 'Какое любимое блюдо выбирает N?'],
      pet: ['Домашний питомец, которого завёл N, это V.', 'Какие домашние питомцы, спрашивает ли N?'],
      work: ['N работает V в небольшой фирме.', 'Какая работа, кем занят N?'],
      study: ['N снова учится, хочет стать V.', 'Чему учится и какую учёбу выбрал N?'],
      free: ['По выходным N занимается V с друзьями.', 'Чем занят N в выходные?'],
      car: ['N ездит на V машине, она часто ломается.', 'Какого цвета машина, на чём ездит N?'],
    },
  },
  zh: {
    names:
      '王伟,李娜,张敏,刘洋,陈静,杨帆,赵磊,黄丽,周杰,吴霞,徐强,孙梅,马超,朱琳,胡军,郭芳,何平,高燕,林峰,罗兰,郑浩,梁雪,谢云,宋健,唐晶',
    values: {
      city: '北京,上海,成都,广州,西安,杭州',
      food: '花生,贝类,草莓,鸡蛋,小麦,杏仁',
      animal: '狗,猫,鹦鹉,兔子,乌龟,仓鼠',
      job: '老师,护士,木匠,律师,工程师,面包师',
      hobby: '攀岩,画画,下棋,园艺,帆船,摄影',
      color: '红色,绿色,银色,黑色,白色,黄色',
    },
    topics: {
      lives: ['N这几年一直住在V。', 'N住在哪个城市?'],
      travels: ['下个月N要去V旅行看望家人。', 'N有什么旅行计划?'],
      born: ['N出生在V,在那里长大。', 'N的出生地是哪里?'],
      allergy: ['注意:N对V过敏。', 'N有哪些过敏?'],
      favourite: ['N最喜欢吃有V的菜。', 'N喜欢什么菜?'],
      pet: ['N的宠物是一只V,睡在沙发上。', 'N养了什么宠物?'],
      work: ['N在一家小公司工作,是V。', 'N做什么工作?'],
      study: ['N又开始学习了,想当V。', 'N在学习什么?'],
      free: ['周末N和朋友们一起V。', 'N周末做什么?'],
      car: ['N开一辆V的车,经常坏。', 'N的车是什么颜色?'],
    },
  },
  ja: {
    names:
      '太郎,花子,健一,美咲,大輔,由美,翔太,恵子,拓也,真由美,直樹,彩香,和也,智子,亮介,久美子,雄一,奈々,浩二,麻衣,隆,裕子,誠,早紀,光',
    values: {
      city: '東京,大阪,京都,札幌,福岡,名古屋',
      food: 'ピーナッツ,貝,いちご,卵,小麦,アーモンド',
      animal: '犬,猫,オウム,うさぎ,亀,ハムスター',
      job: '教師,看護師,大工,弁護士,エンジニア,パン職人',
      hobby: 'クライミング,絵,将棋,庭仕事,ヨット,写真',
      color: '赤い,緑の,銀色の,黒い,白い,黄色い',
    },
    topics: {
      lives: ['Nさんは数年前からVに住んでいます。', 'Nさんはどこに住んでいますか?'],
      travels: ['来月Nさんは家族に会いにVへ旅行します。', 'Nさんの旅行の予定は?'],
      born: ['NさんはVで生まれ、そこで育ちました。', 'Nさんはどこの生まれですか?'],
      allergy: ['注意:NさんはVのアレルギーがあります。', 'Nさんにはどんなアレルギーがある?'],
      favourite: ['NさんはVの料理が何より好きです。', 'Nさんが好きな料理は何?'],
      pet: ['NさんのペットはVで、ソファで寝ます。', 'Nさんはどんなペットを飼っていますか?'],
      work: ['Nさんは小さな会社でVとして働いています。', 'Nさんはどこで働いていますか?'],
      study: ['NさんはVになるためにまた勉強を始めました。', 'Nさんは何を勉強していますか?'],
      free: ['週末Nさんは友達とVを楽しみます。', 'Nさんの週末の楽しみは?'],
      car: ['NさんはVの車を運転していて、よく壊れます。', 'Nさんの車は何色?'],
    },
  },
  ko: {
    names:
      '민수,지영,현우,수진,영호,은주,동현,미경,성민,혜진,준호,유리,태영,소연,재석,나래,경수,보람,상훈,하늘,진우,예린,기태,다은,윤아',
    values: {
      city: '서울,부산,대구,인천,광주,제주',
      food: '땅콩,조개,딸기,계란,밀가루,아몬드',
      animal: '강아지,고양이,앵무새,토끼,거북이,햄스터',
      job: '교사,간호사,목수,변호사,기술자,제빵사',
      hobby: '등산,그림,바둑,정원일,요트,사진',
      color: '빨간,초록,은색,검은,하얀,노란',
    },
    topics: {
      lives: ['N 씨는 몇 년 전부터 V에 살고 있습니다.', 'N는 지금 어디에 살아요?'],
      travels: ['다음 달에 N 씨는 가족을 만나러 V로 여행을 갑니다.', 'N의 여행 계획은 무엇인가요?'],
      born: ['N 씨는 V에서 태어나 자랐습니다.', 'N는 어디에서 태어났어요?'],
      allergy: ['주의: N 씨는 V 알레르기가 있습니다.', 'N에게 어떤 알레르기가 있나요?'],
      favourite: ['N 씨는 V 요리를 가장 좋아합니다.', 'N가 좋아하는 요리는?'],
      pet: ['N 씨의 애완동물은 V이고 소파에서 잡니다.', 'N는 어떤 애완동물을 키워요?'],
      work: ['N 씨는 작은 회사에서 V로 일합니다.', 'N는 무슨 일을 합니까?'],
      study: ['N 씨는 V가 되려고 다시 공부를 시작했습니다.', 'N는 무엇을 공부하나요?'],
      free: ['주말에 N 씨는 친구들과 V을 즐깁니다.', 'N는 주말에 무엇을 즐겨요?'],
      car: ['N 씨는 V 자동차를 운전하는데 자주 고장납니다.', 'N의 자동차는 무슨 색이에요?'],
    },
  },
};
